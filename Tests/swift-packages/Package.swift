// swift-tools-version: 6.2
import PackageDescription

// A package like a user's own: it depends on Penstock by its path, with the trait for messages of SwiftProtobuf.
let package = Package(
  name: "swift-packages",
  dependencies: [
    .package(name: "penstock", path: "../..", traits: ["SwiftProtobuf"]),
    .package(url: "https://github.com/apple/swift-protobuf.git", from: "1.39.0", traits: []),
  ],
  targets: [
    .testTarget(
      name: "ProtobufTests",
      dependencies: [
        .product(name: "Penstock", package: "penstock"),
        .product(name: "SwiftProtobuf", package: "swift-protobuf"),
      ])
  ])
