// swift-tools-version: 6.2
import PackageDescription

// A package like a user's own: it depends on Penstock by its path, with the traits for messages of SwiftProtobuf and for
// grpc-swift 2.
let package = Package(
  name: "swift-packages",
  dependencies: [
    .package(name: "penstock", path: "../..", traits: ["SwiftProtobuf", "GRPCSwift"]),
    .package(url: "https://github.com/apple/swift-protobuf.git", from: "1.39.0", traits: []),
    .package(url: "https://github.com/grpc/grpc-swift-2.git", from: "2.4.3"),
    .package(url: "https://github.com/grpc/grpc-swift-protobuf.git", from: "2.4.1"),
  ],
  targets: [
    .testTarget(
      name: "ProtobufTests",
      dependencies: [
        .product(name: "Penstock", package: "penstock"),
        .product(name: "SwiftProtobuf", package: "swift-protobuf"),
      ]),
    .testTarget(
      name: "GRPCTests",
      dependencies: [
        .product(name: "Penstock", package: "penstock"),
        .product(name: "PenstockGRPC", package: "penstock"),
        .product(name: "GRPCCore", package: "grpc-swift-2"),
      ]),
    // The program of examples/grpc-swift, which is a package of its own.
    .executableTarget(
      name: "greeter",
      dependencies: [
        .product(name: "PenstockGRPC", package: "penstock"),
        .product(name: "GRPCCore", package: "grpc-swift-2"),
        .product(name: "GRPCProtobuf", package: "grpc-swift-protobuf"),
      ], path: "Greeter", exclude: ["helloworld.proto"]),
  ])
