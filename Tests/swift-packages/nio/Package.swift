// swift-tools-version: 6.2
import PackageDescription

// The tests of a transport for grpc-swift 2, over its own NIO transport instead of Penstock's.
let package = Package(
  name: "swift-packages-nio",
  dependencies: [
    .package(url: "https://github.com/grpc/grpc-swift-2.git", from: "2.4.3"),
    .package(url: "https://github.com/grpc/grpc-swift-nio-transport.git", from: "2.9.2"),
  ],
  targets: [
    .testTarget(
      name: "GRPCTests",
      dependencies: [
        .product(name: "GRPCCore", package: "grpc-swift-2"),
        .product(name: "GRPCNIOTransportHTTP2Posix", package: "grpc-swift-nio-transport"),
      ], path: "GRPCTests", exclude: ["TransportTests.swift"], swiftSettings: [.define("NIO")])
  ])
