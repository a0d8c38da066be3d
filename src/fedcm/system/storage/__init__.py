"""Numbers in files.

    tensor_files     write tensors as safetensors files
    number_files     read CSV files with one row per client
    mapped_files     map large arrays instead of copying them

The modules are imported one by one, because some of them load torch and others must not.
"""
