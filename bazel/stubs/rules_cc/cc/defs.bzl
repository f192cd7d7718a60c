cc_binary, cc_library, cc_test = native.cc_binary, native.cc_library, native.cc_test
cc_toolchain, cc_toolchain_suite = native.cc_toolchain, native.cc_toolchain_suite
