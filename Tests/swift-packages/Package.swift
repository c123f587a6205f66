// swift-tools-version: 6.2
import PackageDescription

// A package like a user's own: it depends on Penstock by its path, with the traits for messages of SwiftProtobuf, for
// grpc-swift 2, and for logs, metrics and traces.
let package = Package(
  name: "swift-packages",
  dependencies: [
    .package(
      name: "penstock", path: "../..", traits: [.defaults, "SwiftProtobuf", "GRPCSwift", "Observability"]),
    .package(url: "https://github.com/apple/swift-protobuf.git", from: "1.39.0", traits: []),
    .package(url: "https://github.com/grpc/grpc-swift-2.git", from: "2.4.3"),
    .package(url: "https://github.com/grpc/grpc-swift-protobuf.git", from: "2.4.1"),
    .package(url: "https://github.com/apple/swift-log.git", from: "1.16.2"),
    .package(url: "https://github.com/apple/swift-metrics.git", from: "2.13.0"),
    .package(url: "https://github.com/apple/swift-distributed-tracing.git", from: "1.7.3"),
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
    .testTarget(
      name: "ObservabilityTests",
      dependencies: [
        .product(name: "Penstock", package: "penstock"),
        .product(name: "PenstockObservability", package: "penstock"),
        .product(name: "Logging", package: "swift-log"),
        .product(name: "InMemoryLogging", package: "swift-log"),
        .product(name: "Metrics", package: "swift-metrics"),
        .product(name: "MetricsTestKit", package: "swift-metrics"),
        .product(name: "Tracing", package: "swift-distributed-tracing"),
        .product(name: "InMemoryTracing", package: "swift-distributed-tracing"),
      ]),
    // Clients of protoc-gen-penstock-swift, and messages in a module of their own. Where functions are the main actor's and
    // imports internal by default, the clients are as elsewhere.
    .target(
      name: "Shapes", dependencies: [.product(name: "SwiftProtobuf", package: "swift-protobuf")],
      path: "clients/Shapes"),
    .target(
      name: "Clients",
      dependencies: [
        "Shapes",
        .product(name: "Penstock", package: "penstock"),
        .product(name: "SwiftProtobuf", package: "swift-protobuf"),
      ], path: "clients/Clients",
      swiftSettings: [
        .defaultIsolation(MainActor.self), .treatAllWarnings(as: .error),
        .enableUpcomingFeature("ExistentialAny"),
        .enableUpcomingFeature("InternalImportsByDefault"), .enableUpcomingFeature("MemberImportVisibility"),
      ]),
    .target(
      name: "Bare",
      dependencies: [
        .product(name: "Penstock", package: "penstock"),
        .product(name: "SwiftProtobuf", package: "swift-protobuf"),
      ], path: "clients/Bare", swiftSettings: [.treatAllWarnings(as: .error)]),
    .testTarget(
      name: "ClientTests",
      dependencies: [
        "Bare", "Clients", "Shapes",
        .product(name: "Penstock", package: "penstock"),
        .product(name: "SwiftProtobuf", package: "swift-protobuf"),
      ], path: "clients/ClientTests"),
    // The programs of examples/swift-protobuf and examples/grpc-swift, which are packages of their own.
    .executableTarget(
      name: "typed",
      dependencies: [
        .product(name: "Penstock", package: "penstock"),
        .product(name: "SwiftProtobuf", package: "swift-protobuf"),
      ], path: "Typed", exclude: ["helloworld.proto"]),
    .executableTarget(
      name: "greeter",
      dependencies: [
        .product(name: "PenstockGRPC", package: "penstock"),
        .product(name: "GRPCCore", package: "grpc-swift-2"),
        .product(name: "GRPCProtobuf", package: "grpc-swift-protobuf"),
      ], path: "Greeter", exclude: ["helloworld.proto"]),
  ])
