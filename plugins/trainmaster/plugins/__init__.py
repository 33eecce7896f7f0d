"""The built-in plugins, one module each; they enter through entry points like everybody else's."""
