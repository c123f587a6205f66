import Glibc
import Testing

/// A penstock-peer in a process of its own, which ends with this object.
final class Server: Sendable {
  let target: String
  private let process: pid_t
  private let socket: Int32

  struct Failure: Error { let what: String }

  init(_ arguments: [String] = []) throws {
    // One socket is the server's input and its output. No process that another test starts inherits it.
    var sockets: [Int32] = [0, 0]
    guard
      socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0, &sockets) == 0
    else { throw Failure(what: "socketpair") }
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, sockets[1], 0)
    posix_spawn_file_actions_adddup2(&actions, sockets[1], 1)
    let program = try Self.program()
    var words: [UnsafeMutablePointer<CChar>?] =
      ([program, "--exit-with-stdin", "--listen", "127.0.0.1:0"] + arguments).map { strdup($0) } + [nil]
    defer { for word in words { free(word) } }
    var process = pid_t()
    let result = posix_spawn(&process, program, &actions, nil, &words, environ)
    close(sockets[1])
    guard result == 0 else {
      close(sockets[0])
      throw Failure(what: "\(program): \(String(cString: strerror(result)))")
    }
    self.process = process
    socket = sockets[0]
    target = try Self.address(socket)
    var limit = timeval(tv_sec: 30, tv_usec: 0)
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
  }

  deinit {
    close(socket)
    var status: Int32 = 0
    while waitpid(process, &status, 0) < 0 && errno == EINTR {}
  }

  /// The server that was built with these tests, or the one that the environment names.
  private static func program() throws -> String {
    if let given = getenv("PENSTOCK_PEER") { return String(cString: given) }
    var path = [CChar](repeating: 0, count: Int(PATH_MAX))
    let length = readlink("/proc/self/exe", &path, path.count - 1)
    guard length > 0 else { throw Failure(what: "/proc/self/exe") }
    let tests = String(decoding: path[..<length].map { UInt8(bitPattern: $0) }, as: UTF8.self)
    return tests[...(tests.lastIndex(of: "/") ?? tests.startIndex)] + "penstock-peer"
  }

  /// Reads the line that says where the server listens.
  private static func address(_ descriptor: Int32) throws -> String {
    let line = line(descriptor)
    let parts = line.split(separator: "\"", omittingEmptySubsequences: false)
    guard let key = parts.firstIndex(of: "address"), parts.count > key + 2 else {
      throw Failure(what: "the server says \(line)")
    }
    return String(parts[key + 2])
  }

  /// The next lines about calls that have ended, of a server with "--print-requests"; empty ones if none comes for long.
  func lines(_ count: Int) -> [String] { (0..<count).map { _ in Self.line(socket) } }

  private static func line(_ descriptor: Int32) -> String {
    var line: [UInt8] = []
    var byte: UInt8 = 0
    while read(descriptor, &byte, 1) == 1, byte != UInt8(ascii: "\n") { line.append(byte) }
    return String(decoding: line, as: UTF8.self)
  }
}

/// The requests of a stream.
func stream(_ messages: [[UInt8]]) -> AsyncStream<[UInt8]> {
  AsyncStream { continuation in
    for message in messages { continuation.yield(message) }
    continuation.finish()
  }
}

func text(_ bytes: [UInt8]) -> String { String(decoding: bytes, as: UTF8.self) }
func bytes(_ text: String) -> [UInt8] { [UInt8](text.utf8) }

func readFile(_ path: String) throws -> String {
  guard let file = fopen(path, "r") else { throw Server.Failure(what: path) }
  defer { fclose(file) }
  var all: [UInt8] = []
  var part = [UInt8](repeating: 0, count: 65_536)
  while case let count = fread(&part, 1, part.count, file), count > 0 { all += part[..<count] }
  return String(decoding: all, as: UTF8.self)
}

/// Waits until `condition` holds. After a minute that is a failure, and the wait ends.
func eventually(
  isolation: isolated (any Actor)? = #isolation, at place: SourceLocation = #_sourceLocation,
  _ condition: () async throws -> Bool
) async rethrows {
  let end = ContinuousClock.now + .seconds(60)
  while try await !condition() {
    guard ContinuousClock.now < end else {
      Issue.record("it did not become true within a minute", sourceLocation: place)
      return
    }
    await Task.yield()
  }
}

/// The memory of this process, in bytes.
func residentBytes() -> Int {
  let words = ((try? readFile("/proc/self/statm")) ?? "").split(separator: " ")
  return (words.count > 1 ? Int(words[1]) ?? 0 : 0) * 4096
}
