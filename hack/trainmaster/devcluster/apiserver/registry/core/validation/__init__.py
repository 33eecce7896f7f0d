"""The rules of pods and pod templates, by room (kube-apiserver 1.36, pkg/apis/core/validation).

Every function gets a part of an object that was decoded and defaulted, and the path to it, and gives what is wrong with
it. A field that is absent and one with the zero value are the same thing, as they are to the real server.
"""
