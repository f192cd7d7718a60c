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

def planted_fault(name, fuzzer, src, find, replace, deps, hdrs = []):
    """A fuzzer with one changed line of the product, which it must find (./test --long fuzz, first of all).

    Makes :FUZZER_planted_NAME. As in bazel/planted.bzl the changed file is an object of the program, so that the linker
    leaves the library's member out.

    Args:
      name: of the fault.
      fuzzer: whose corpus and entry point are used.
      src: label of the source file.
      find: basic regular expression (sed); the build fails when no line matches.
      replace: what stands there instead.
      deps: the library of `src` and what it includes.
      hdrs: what it includes that only its own library may.
    """
    native.genrule(
        name = name + "_source",
        srcs = [src],
        outs = [name + ".cc"],
        cmd = "sed 's~%s~%s~' $< > $@ && ! cmp -s $< $@" % (find, replace),
        tags = ["manual"],
    )
    native.cc_binary(
        name = fuzzer + "_planted_" + name,
        srcs = [name + ".cc"] + hdrs,
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual", "planted"],
        deps = deps + [":" + fuzzer + "_fuzz"],
    )
