// swift-tools-version: 6.2
import PackageDescription

// A client that is generated for grpc-swift 2, over libpenstock:
//   swift run --package-path examples/grpc-swift greeter 127.0.0.1:50051
// helloworld.pb.swift and helloworld.grpc.swift come from helloworld.proto:
//   protoc --swift_out=. --grpc-swift-2_out=. --grpc-swift-2_opt=Server=false helloworld.proto
let package = Package(
  name: "grpc-swift-examples",
  dependencies: [
    .package(name: "penstock", path: "../..", traits: [.defaults, "GRPCSwift"]),
    .package(url: "https://github.com/grpc/grpc-swift-2.git", from: "2.4.3"),
    .package(url: "https://github.com/grpc/grpc-swift-protobuf.git", from: "2.4.1"),
  ],
  targets: [
    .executableTarget(
      name: "greeter",
      dependencies: [
        .product(name: "PenstockGRPC", package: "penstock"),
        .product(name: "GRPCCore", package: "grpc-swift-2"),
        .product(name: "GRPCProtobuf", package: "grpc-swift-protobuf"),
      ], path: "greeter", exclude: ["helloworld.proto"])
  ])
