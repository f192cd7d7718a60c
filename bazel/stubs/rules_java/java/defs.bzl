java_import, java_runtime, java_toolchain = native.java_import, native.java_runtime, native.java_toolchain
