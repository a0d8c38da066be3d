"""What fedcm needs from the operating system and from Python itself.

    files            write files atomically; test whether a lock is held
    storage          tensors, tables and mapped arrays in files
    processes        end a process when its parent is gone; describe how one ended
    signals          stop cleanly on Ctrl-C, SIGTERM and SIGHUP
    hardware         CPU cores, CUDA devices, the number of threads
    memory           the C allocator
    imports          import an object by `package.module:name`
    callbacks        types of callbacks
    error_messages   describe an exception in one line, with the line of user code that raised it
    user_warnings    fedcm's warnings and how they are shown
    formatting       format numbers for people, and make file names from text

The modules are imported one by one, because some of them load torch and others must not.
"""
