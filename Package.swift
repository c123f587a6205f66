// swift-tools-version: 6.2
import PackageDescription

// One switch picks the mode: PENSTOCK_EMBEDDED=1 builds the shipped library in Embedded Swift; without it the
// same sources build in full mode, where the Swift tests and the sanitizers run. The Makefile sets it.
let embedded = Context.environment["PENSTOCK_EMBEDDED"] == "1"
// PENSTOCK_FUZZ=1 adds the fuzzers, which libFuzzer links with a main function of its own: scripts/fuzz.
let fuzzing = Context.environment["PENSTOCK_FUZZ"] == "1"
// PENSTOCK_BLOCK_CACHE=0 leaves out the cache of blocks (Sources/CPenstockEmbedded/blocks.c).
let keepsBlocks = Context.environment["PENSTOCK_BLOCK_CACHE"] != "0"

var swift: [SwiftSetting] = [
  .swiftLanguageMode(.v6),
  .treatAllWarnings(as: .error),
  .enableExperimentalFeature("CImplementation"),
]
if embedded {
  swift += [
    .enableExperimentalFeature("Embedded"),
    // Embedded mode has no exclusivity checks: without this it calls an empty function at each access all the same.
    .unsafeFlags([
      "-wmo", "-enforce-exclusivity=unchecked", "-Xcc", "-fPIC", "-Xcc", "-DPENSTOCK_EMBEDDED",
      "-Xfrontend", "-function-sections",
    ]),
  ]
}

// Where tests run, each step of a call looks at what has to hold (Sources/PenstockCall/Invariants.swift). A Swift program that is
// built for release does without.
if fuzzing || Context.environment["PENSTOCK_CHECKS"] == "1" {
  swift += [.define("PENSTOCK_CHECKS")]
} else if !embedded {
  swift += [.define("PENSTOCK_CHECKS", .when(configuration: .debug))]
}

if fuzzing { swift += [.unsafeFlags(["-enable-testing", "-sanitize=fuzzer,address"])] }

// Where what counts is size: decisions and names, options, JSON, and callbacks that do little.
let small = swift + (embedded ? [.unsafeFlags(["-Osize"])] : [])

// What stands under Embedded Swift: memory, reference counts, and what older glibc versions lack.
let shims: [Target] =
  embedded
  ? [
    .target(
      name: "CPenstockEmbedded",
      cSettings: [.unsafeFlags(["-gdwarf-4", "-O3", "-momit-leaf-frame-pointer"])]
        + (keepsBlocks ? [] : [.define("PENSTOCK_NO_BLOCK_CACHE")]))
  ] : []
let shimmed: [Target.Dependency] = embedded ? ["CPenstockEmbedded"] : []

let tests: [Target] =
  embedded
  ? []
  : [
    // Threads, waits and a simulated world for the tests of several targets.
    .target(
      name: "PenstockTestSupport",
      dependencies: ["PenstockLoop", "PenstockNames", "PenstockWire", "CPenstockSystem"],
      path: "Tests/PenstockTestSupport", swiftSettings: swift),
    .testTarget(name: "PenstockWireTests", dependencies: ["PenstockWire"], swiftSettings: swift),
    .testTarget(
      name: "PenstockNamesTests", dependencies: ["PenstockNames", "PenstockTestSupport"], swiftSettings: swift
    ),
    .testTarget(
      name: "PenstockLoopTests", dependencies: ["PenstockLoop", "PenstockTestSupport"], swiftSettings: swift),
    .testTarget(
      name: "PenstockCallTests", dependencies: ["PenstockCall", "PenstockLaws"], swiftSettings: swift),
    .testTarget(
      name: "PenstockChannelTests", dependencies: ["PenstockChannel", "PenstockTestSupport"],
      swiftSettings: swift),
    .target(
      name: "PenstockTestCertificates", dependencies: ["PenstockLink", "PenstockTestSupport"],
      path: "Tests/PenstockTestCertificates", swiftSettings: swift),
    .testTarget(
      name: "PenstockLinkTests",
      dependencies: ["PenstockLink", "PenstockTestCertificates", "PenstockTestSupport"],
      swiftSettings: swift),
    .testTarget(
      name: "PenstockHTTPTests", dependencies: ["PenstockHTTP", "PenstockLaws", "PenstockTestSupport"],
      swiftSettings: swift),
    .testTarget(
      name: "PenstockFramingTests", dependencies: ["PenstockFraming", "PenstockTestSupport"],
      swiftSettings: swift),
    .testTarget(
      name: "PenstockTransportTests", dependencies: ["PenstockTransport", "PenstockTestSupport"],
      swiftSettings: swift),
    .testTarget(
      name: "PenstockReadyTests", dependencies: ["PenstockReady", "PenstockTestSupport"], swiftSettings: swift
    ),
    // Whole clients, down to the sockets.
    .testTarget(
      name: "PenstockClientTests",
      dependencies: [
        "PenstockReady", "PenstockClient", "PenstockLaws", "PenstockTestCertificates", "PenstockTestSupport",
      ],
      swiftSettings: swift),
  ]

// The library for Swift programs: on the public header alone. Linked with it are the targets that export what that header
// declares, or an installed libpenstock.
let host: [Target] =
  embedded
  ? []
  : [
    .target(
      name: "Penstock",
      dependencies: [
        "CPenstock", .target(name: "PenstockABI", condition: .when(traits: ["Bundled"])),
        .product(
          name: "SwiftProtobuf", package: "swift-protobuf", condition: .when(traits: ["SwiftProtobuf"])),
      ],
      swiftSettings: swift,
      linkerSettings: [.linkedLibrary("penstock", .when(traits: ["SystemLibrary"]))]),
    // The library under grpc-swift 2; empty without its trait.
    .target(
      name: "PenstockGRPC",
      dependencies: [
        "Penstock",
        .product(name: "GRPCCore", package: "grpc-swift-2", condition: .when(traits: ["GRPCSwift"])),
      ],
      swiftSettings: swift),
    // Interceptors for swift-log, swift-metrics and swift-distributed-tracing; empty without its trait.
    .target(
      name: "PenstockObservability",
      dependencies: [
        "Penstock",
        .product(name: "Logging", package: "swift-log", condition: .when(traits: ["Observability"])),
        .product(name: "CoreMetrics", package: "swift-metrics", condition: .when(traits: ["Observability"])),
        .product(
          name: "Tracing", package: "swift-distributed-tracing", condition: .when(traits: ["Observability"])),
      ],
      swiftSettings: swift),
    // A plugin of protoc that makes typed clients; without its trait it says so.
    .executableTarget(
      name: "protoc-gen-penstock-swift",
      dependencies: [
        "CPenstock", "CPenstockVersion",
        .product(
          name: "SwiftProtobufPluginLibrary", package: "swift-protobuf",
          condition: .when(traits: ["SwiftProtobuf"])),
      ],
      swiftSettings: swift),
    .testTarget(
      name: "PenstockHostTests", dependencies: ["Penstock", "PenstockTestCertificates"], swiftSettings: swift),
  ]
// Where the library comes from; and messages of SwiftProtobuf, the transport for grpc-swift 2, and logs, metrics and traces.
// Without the latter traits nothing is fetched.
let hostTraits: Set<Trait> =
  embedded
  ? []
  : [
    .default(enabledTraits: ["Bundled"]),
    .trait(name: "Bundled", description: "the library is built with the program, and is a part of it"),
    .trait(name: "SystemLibrary", description: "the program is linked with an installed libpenstock instead"),
    .trait(
      name: "SwiftProtobuf",
      description:
        "calls with messages of SwiftProtobuf, details of errors as messages, and the plugin of protoc"),
    .trait(name: "GRPCSwift", description: "the product PenstockGRPC, a transport for grpc-swift 2"),
    .trait(
      name: "Observability",
      description: "the product PenstockObservability, for swift-log, swift-metrics and distributed tracing"),
  ]
let hostPackages: [Package.Dependency] =
  embedded
  ? []
  : [
    .package(url: "https://github.com/apple/swift-protobuf.git", from: "1.39.0", traits: []),
    .package(url: "https://github.com/grpc/grpc-swift-2.git", from: "2.4.3"),
    .package(url: "https://github.com/apple/swift-log.git", from: "1.16.2"),
    .package(url: "https://github.com/apple/swift-metrics.git", from: "2.13.0"),
    .package(url: "https://github.com/apple/swift-distributed-tracing.git", from: "1.7.3"),
  ]
let hostProducts: [Product] =
  embedded
  ? []
  : [
    .library(name: "Penstock", targets: ["Penstock"]),
    .library(name: "PenstockGRPC", targets: ["PenstockGRPC"]),
    .library(name: "PenstockObservability", targets: ["PenstockObservability"]),
    .executable(name: "protoc-gen-penstock-swift", targets: ["protoc-gen-penstock-swift"]),
  ]

let fuzzers: [Target] =
  fuzzing
  ? [
    .executableTarget(
      name: "penstock-fuzz",
      dependencies: [
        "PenstockABI", "PenstockJSON", "PenstockClient", "PenstockTransport", "PenstockFraming",
        "PenstockHTTP", "PenstockLink", "PenstockChannel", "PenstockCall", "PenstockLoop", "PenstockNames",
        "PenstockWire", "CPenstock", "CPenstockSystem", "CPenstockOpenSSL",
      ],
      path: "fuzz", exclude: ["corpus"], swiftSettings: swift + [.unsafeFlags(["-parse-as-library"])],
      linkerSettings: [.unsafeFlags(["-sanitize=fuzzer,address"])])
  ] : []

let package = Package(
  name: "penstock",
  products: [
    .library(name: "penstock", type: .static, targets: ["PenstockABI"]),
    .executable(name: "penstock-peer", targets: ["penstock-peer"]),
    .executable(name: "penstock-laws", targets: ["penstock-laws"]),
  ] + hostProducts,
  traits: hostTraits,
  dependencies: hostPackages,
  targets: [
    .systemLibrary(name: "CPenstock", path: "include"),
    .systemLibrary(name: "CPenstockMemory"),
    .systemLibrary(name: "CPenstockSystem"),
    .systemLibrary(name: "CPenstockNghttp2"),
    .systemLibrary(name: "CPenstockOpenSSL"),
    .systemLibrary(name: "CPenstockJansson"),
    .systemLibrary(name: "CPenstockZlib"),
    .systemLibrary(name: "CPenstockZstd"),
    .systemLibrary(name: "CPenstockVersion"),
    .systemLibrary(name: "CPenstockLibraries"),
    .target(
      name: "PenstockWire", dependencies: ["CPenstockMemory", "CPenstockSystem"], swiftSettings: swift),
    .target(name: "PenstockNames", dependencies: ["PenstockWire", "CPenstockSystem"], swiftSettings: small),
    .target(
      name: "PenstockLoop",
      dependencies: ["PenstockNames", "PenstockWire", "CPenstockMemory", "CPenstockSystem"],
      swiftSettings: swift),
    .target(name: "PenstockCall", dependencies: ["PenstockWire", "CPenstockMemory"], swiftSettings: swift),
    .target(
      name: "PenstockChannel", dependencies: ["PenstockCall", "PenstockNames", "PenstockWire"],
      swiftSettings: small
    ),
    .target(
      name: "PenstockLink",
      dependencies: [
        "PenstockLoop", "PenstockNames", "PenstockCall", "PenstockWire", "CPenstockMemory", "CPenstockSystem",
        "CPenstockOpenSSL",
      ],
      swiftSettings: swift),
    .target(
      name: "PenstockHTTP",
      dependencies: [
        "PenstockLink", "PenstockLoop", "PenstockChannel", "PenstockCall", "PenstockNames", "PenstockWire",
        "CPenstockMemory",
        "CPenstockSystem", "CPenstockNghttp2",
      ],
      swiftSettings: swift),
    .target(
      name: "PenstockFraming",
      dependencies: [
        "PenstockHTTP", "PenstockLink", "PenstockChannel", "PenstockCall", "PenstockLoop", "PenstockWire",
        "CPenstockMemory", "CPenstockZlib", "CPenstockZstd",
      ],
      swiftSettings: swift),
    .target(
      name: "PenstockTransport",
      dependencies: [
        "PenstockFraming", "PenstockHTTP", "PenstockLink", "PenstockChannel", "PenstockCall", "PenstockLoop",
        "PenstockNames", "PenstockWire", "CPenstockMemory", "CPenstockSystem", "CPenstockNghttp2",
        "CPenstockOpenSSL",
      ],
      swiftSettings: swift),
    .target(
      name: "PenstockTickets", dependencies: ["PenstockLoop", "PenstockCall", "PenstockWire"],
      swiftSettings: swift),
    .target(
      name: "PenstockClient",
      dependencies: [
        "PenstockTickets", "PenstockTransport", "PenstockFraming", "PenstockLoop", "PenstockChannel",
        "PenstockCall", "PenstockNames", "PenstockWire", "CPenstockMemory", "CPenstockSystem",
      ],
      swiftSettings: swift),
    .target(
      name: "PenstockReady",
      dependencies: [
        "PenstockClient", "PenstockTickets", "PenstockTransport", "PenstockChannel", "PenstockCall",
        "PenstockLoop", "PenstockNames", "PenstockWire", "CPenstockMemory",
      ],
      swiftSettings: small),
    .target(
      name: "PenstockJSON",
      dependencies: [
        "PenstockReady", "PenstockClient", "PenstockTransport", "PenstockFraming", "PenstockHTTP",
        "PenstockLink", "PenstockChannel", "PenstockCall", "PenstockLoop", "PenstockNames", "PenstockWire",
        "CPenstockMemory", "CPenstockSystem", "CPenstockJansson",
      ],
      swiftSettings: small),
    .target(
      name: "PenstockABI",
      dependencies: [
        "PenstockJSON", "PenstockReady", "PenstockClient", "PenstockTickets", "PenstockTransport",
        "PenstockFraming", "PenstockHTTP", "PenstockLink", "PenstockChannel", "PenstockCall", "PenstockLoop",
        "PenstockNames", "PenstockWire", "CPenstockMemory", "CPenstockSystem", "CPenstockVersion",
        "CPenstockLibraries", "CPenstock",
      ]
        + shimmed,
      swiftSettings: small),
    .executableTarget(
      name: "penstock-peer",
      dependencies: [
        "PenstockTransport", "PenstockChannel", "PenstockLoop", "PenstockNames", "PenstockWire",
        "CPenstockMemory",
        "CPenstockSystem",
        "CPenstockNghttp2", "CPenstockOpenSSL", "CPenstockZlib", "CPenstockZstd", "CPenstockJansson",
      ]
        + shimmed,
      swiftSettings: swift + [.unsafeFlags(["-parse-as-library"])],
      // Embedded mode takes over only some of the module maps' link lines from modules that are not imported here.
      linkerSettings: ["nghttp2", "ssl", "crypto", "z", "jansson"].map { .linkedLibrary($0) }),
    // Random chains against a model: for the tests, and for a program that runs them in both modes.
    .target(
      name: "PenstockLaws", dependencies: ["PenstockCall", "PenstockWire"], path: "Tests/PenstockLaws",
      swiftSettings: swift),
    .executableTarget(
      name: "penstock-laws", dependencies: ["PenstockLaws", "CPenstockSystem"] + shimmed,
      path: "Tests/penstock-laws",
      swiftSettings: swift + [.unsafeFlags(["-parse-as-library"])]),
  ] + shims + host + tests + fuzzers
)
