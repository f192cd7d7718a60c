// Planted: this folder may include common/ only, and nothing of gRPC.
#include "engine/model_runner.h"
#include "grpcpp/grpcpp.h"
