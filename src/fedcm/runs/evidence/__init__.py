"""The manifest of a finished run, and its verification.

manifest       write, read and remove the manifest; read a file only if it is what the run wrote
verification   compare whole runs with their manifests
"""
