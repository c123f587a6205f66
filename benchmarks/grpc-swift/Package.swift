// swift-tools-version:6.1
// The grpc-swift-2 client of the benchmarks: a package of its own, so that the library does not depend on
// grpc-swift-2.
import PackageDescription

let package = Package(
  name: "grpc-swift-bench",
  dependencies: [
    .package(url: "https://github.com/grpc/grpc-swift-2.git", exact: "2.4.3"),
    .package(url: "https://github.com/grpc/grpc-swift-nio-transport.git", exact: "2.9.2"),
  ],
  targets: [
    .executableTarget(
      name: "grpc-swift-client",
      dependencies: [
        .product(name: "GRPCCore", package: "grpc-swift-2"),
        .product(name: "GRPCNIOTransportHTTP2Posix", package: "grpc-swift-nio-transport"),
      ])
  ],
  swiftLanguageModes: [.v6]
)
