"""fuzzer(): one entry point of libFuzzer, run two ways."""

def fuzzer(name, deps):
    """NAME_fuzz.cc over corpus/NAME.

    Makes :NAME_corpus_test, which feeds the kept inputs in every build, and :NAME_fuzzer, which
    looks for more (./test --long fuzz; links only with --config=fuzz).
    """
    native.cc_library(
        name = name + "_fuzz",
        srcs = [name + "_fuzz.cc"],
        deps = deps,
        alwayslink = True,
    )
    native.cc_binary(
        name = name + "_fuzzer",
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual", "fuzzer"],
        deps = [":" + name + "_fuzz"],
    )
    native.cc_test(
        name = name + "_corpus_test",
        size = "medium",
        srcs = ["corpus_test.cc"],
        data = native.glob(["corpus/" + name + "/*"]),
        local_defines = ["BATON_CORPUS=\\\"tests/fuzz/corpus/" + name + "\\\""],
        deps = [":" + name + "_fuzz", "//bazel:gtest_main"],
    )
