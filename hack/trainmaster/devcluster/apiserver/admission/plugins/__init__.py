"""The built-in admission plugins, a module each: those of kube-apiserver that training needs."""
