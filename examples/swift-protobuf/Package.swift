// swift-tools-version: 6.2
import PackageDescription

// A typed client:
//   swift run --package-path examples/swift-protobuf greeter 127.0.0.1:50051
// helloworld.pb.swift and helloworld.penstock.swift come from helloworld.proto, by two plugins of protoc:
//   swift build -c release --product protoc-gen-swift
//   swift build -c release --product protoc-gen-penstock-swift
//   PATH="$(swift build -c release --show-bin-path):$PATH" protoc --swift_out=. --penstock-swift_out=. helloworld.proto
let package = Package(
  name: "swift-protobuf-examples",
  dependencies: [
    .package(name: "penstock", path: "../..", traits: [.defaults, "SwiftProtobuf"]),
    .package(url: "https://github.com/apple/swift-protobuf.git", from: "1.39.0", traits: []),
  ],
  targets: [
    .executableTarget(
      name: "greeter",
      dependencies: [
        .product(name: "Penstock", package: "penstock"),
        .product(name: "SwiftProtobuf", package: "swift-protobuf"),
      ], path: "greeter", exclude: ["helloworld.proto"])
  ])
