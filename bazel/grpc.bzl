"""protoc and the gRPC plugin of the system, without downloaded rules.

The proto root is the package that calls the macros (proto/): imports read "baton/v1/x.proto" and C++ includes read
"baton/v1/x.pb.h".
"""

_Protos = provider(fields = ["srcs"])  # depset: .proto files with everything they import

def _generate_impl(ctx):
    srcs = depset(ctx.files.srcs, transitive = [d[_Protos].srcs for d in ctx.attr.deps])
    root = ctx.label.package
    out = ctx.bin_dir.path + "/" + root
    args = ["-I" + root, "--cpp_out=" + out]
    if ctx.attr.services:
        args += ["--plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin", "--grpc_out=" + out]
    ctx.actions.run(
        executable = "/usr/bin/protoc",
        arguments = args + [f.path for f in ctx.files.srcs],
        inputs = srcs,
        outputs = ctx.outputs.outs,
        mnemonic = "Protoc",
    )
    return [_Protos(srcs = srcs)]

_generate = rule(implementation = _generate_impl, attrs = {
    "srcs": attr.label_list(allow_files = [".proto"]),
    "deps": attr.label_list(providers = [_Protos]),
    "outs": attr.output_list(),
    "services": attr.bool(),
})

def _library(name, src, deps, services, **kwargs):
    base = src[:-len(".proto")]
    kinds = [".pb", ".grpc.pb"] if services else [".pb"]
    _generate(
        name = name + "_generate",
        srcs = [src],
        outs = [base + k + e for k in kinds for e in [".h", ".cc"]],
        services = services,
        deps = [d + "_generate" for d in deps],
        visibility = ["//visibility:private"],
    )
    native.cc_library(
        name = name,
        srcs = [base + ".pb.cc"],
        hdrs = [base + ".pb.h"],
        copts = ["-w"],
        includes = ["."],
        deps = deps + ["//bazel:protobuf"],
        **kwargs
    )
    if services:
        native.cc_library(
            name = name + "_grpc",
            srcs = [base + ".grpc.pb.cc"],
            hdrs = [base + ".grpc.pb.h"],
            copts = ["-w"],
            includes = ["."],
            deps = [":" + name, "//bazel:grpc"],
            **kwargs
        )

def baton_proto_library(name, src, deps = [], **kwargs):
    """Messages of one .proto; deps are targets of these macros in the same package."""
    _library(name, src, deps, False, **kwargs)

def baton_grpc_library(name, src, deps = [], **kwargs):
    """Messages as NAME (no gRPC headers) and services as NAME_grpc."""
    _library(name, src, deps, True, **kwargs)
