// swift-tools-version: 6.2
import PackageDescription

// Each program takes a target, such as that of build/bin/penstock-peer:
//   swift run --package-path examples/swift cache 127.0.0.1:50051
let programs = ["hello", "auth-refresh", "cache", "pause"]

let package = Package(
  name: "examples",
  dependencies: [.package(name: "penstock", path: "../..")],
  targets: programs.map { name in
    .executableTarget(
      name: name, dependencies: [.product(name: "Penstock", package: "penstock")], path: name,
      swiftSettings: [.treatAllWarnings(as: .error)])
  })
