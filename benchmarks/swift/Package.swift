// swift-tools-version: 6.2
// The Swift clients of the benchmarks: a package of its own that depends on the library by its path, as a user's does, so that
// the library itself does not depend on the NIO transport of grpc-swift-2.
import PackageDescription

let package = Package(
  name: "swift-bench",
  dependencies: [
    .package(name: "penstock", path: "../..", traits: [.defaults, "GRPCSwift"]),
    .package(url: "https://github.com/grpc/grpc-swift-2.git", exact: "2.4.3"),
    .package(url: "https://github.com/grpc/grpc-swift-nio-transport.git", exact: "2.9.2"),
  ],
  targets: [
    .target(name: "BenchSupport", dependencies: [.product(name: "Penstock", package: "penstock")]),
    .executableTarget(
      name: "grpc-swift-client",
      dependencies: [
        "BenchSupport",
        .product(name: "PenstockGRPC", package: "penstock"),
        .product(name: "GRPCCore", package: "grpc-swift-2"),
        .product(name: "GRPCNIOTransportHTTP2Posix", package: "grpc-swift-nio-transport"),
      ]),
    .executableTarget(
      name: "grpc-swift-hello",
      dependencies: [
        .product(name: "GRPCCore", package: "grpc-swift-2"),
        .product(name: "GRPCNIOTransportHTTP2Posix", package: "grpc-swift-nio-transport"),
      ]),
    .executableTarget(
      name: "penstock-swift-client",
      dependencies: ["BenchSupport", .product(name: "Penstock", package: "penstock")]),
  ],
  swiftLanguageModes: [.v6]
)
