"""Defects planted in a copy of one source file, to see that a test of it finds them."""

UNIT_TEST = "^\\[  FAILED  \\]"  # what a gtest program prints of a failure
SIMULATOR = "^seed "  # and the simulator

def planted_defect(name, src, find, replace, deps, names_it, srcs = [], arguments = [], size = "medium"):
    """A test that passes when a program with one changed line finds something wrong.

    Args:
      name: what the defect does.
      src: label of the source file.
      find: basic regular expression (sed); the build fails when no line matches.
      replace: what stands there instead.
      deps: the library of `src`, what it includes, and of `srcs`.
      names_it: basic regular expression (grep): a line of what the program prints when it fails.
      srcs: the program, where it is not among `deps`.
      arguments: of the program.
      size: of the test.
    """
    native.genrule(
        name = name + "_source",
        srcs = [src],
        outs = [name + ".cc"],
        cmd = "sed 's~%s~%s~' $< > $@ && ! cmp -s $< $@" % (find, replace),
        tags = ["manual"],
        testonly = True,
    )

    # The changed file is an object of the program: the linker takes its symbols from there and leaves
    # the library's member out.
    native.cc_binary(
        name = name,
        testonly = True,
        srcs = [name + ".cc"] + srcs,
        tags = ["manual"],
        deps = deps,
    )
    native.sh_test(
        name = name + "_is_found_test",
        size = size,
        srcs = ["//bazel:planted_test.sh"],
        args = ["'%s'" % names_it, "$(location :%s)" % name] + arguments,
        data = [":" + name],
        tags = ["no-sanitizers"],  # broken on purpose
    )
