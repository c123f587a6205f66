import CPenstockSystem
import PenstockTransport
import PenstockWire
import PenstockLink

/// The command line.
struct Options {
  enum Outcome {
    case ok, help
    case wrong(ByteBuffer)
  }

  var listen: ByteView = ("127.0.0.1:0" as StaticString).bytes
  var usesTLS = false
  var certificate: ByteView?
  var key: ByteView?
  var clientCA: ByteView?
  var script: ByteView?
  /// The number of times that a script is played on each connection.
  var times = 1
  /// The content-type that the script's verb `answer` uses.
  var answerType = ("application/grpc" as StaticString).bytes
  /// The versions of HTTP that clients may speak.
  var http = HTTPChoice.auto
  /// The path that comes before each method's path, without a slash at its end; empty: nothing comes before
  /// it.
  var prefix = ("" as StaticString).bytes
  var maxConcurrentStreams = 0
  var maxMessageBytes = 128 << 20
  var streamWindow = 1 << 20
  var maxFrameBytes = 16384
  var printsRequests = false
  var exitWithStdin = false

  static let usage: StaticString = """
    usage: penstock-peer [options]
      --listen ADDRESS            127.0.0.1:0 (the default), [::1]:50051, unix:/path
      --tls --cert F --key F      TLS with this certificate chain and key, in PEM form
      --client-ca F               ask clients for a certificate that this CA has signed
      --max-concurrent-streams N  announced to clients; no limit without
      --max-message-bytes N       the largest message taken or made (134217728)
      --stream-window N           the HTTP/2 window of each stream (1048576)
      --max-frame-bytes N         SETTINGS_MAX_FRAME_SIZE (16384)
      --http auto|2|1.1           the versions of HTTP that clients may speak (auto: both)
      --prefix PATH               the methods' paths are below this one, such as /api
      --script FILE               play a script instead of serving
      --times N                   play the script N times on each connection (1)
      --answer-type TYPE          the content-type of a script's answers (application/grpc)
      --print-requests            a line of JSON on stdout for each call, or each frame that a script saw
      --exit-with-stdin           end when standard input ends
      --help

    """

  mutating func read(_ argc: Int32, _ argv: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>) -> Outcome {
    var at = 1
    while at < Int(argc) {
      let name = cString(argv[at])
      at += 1
      if bytesEqual(name, "--help") { return .help }
      if flag(name) { continue }
      guard isKnown(name) else { return .wrong(Text("unknown option ").put(name).put(" (see --help)")) }
      guard at < Int(argc) else { return .wrong(Text("no value for ").put(name)) }
      let value = cString(argv[at])
      at += 1
      if !set(name, value) { return .wrong(Text("not a value for ").put(name).put(": ").put(value)) }
    }
    if usesTLS && (certificate == nil || key == nil) { return .wrong(Text("--tls needs --cert and --key")) }
    if !usesTLS && (certificate != nil || key != nil || clientCA != nil) {
      return .wrong(Text("--cert, --key and --client-ca need --tls"))
    }
    return .ok
  }

  private mutating func flag(_ name: ByteView) -> Bool {
    if bytesEqual(name, "--tls") {
      usesTLS = true
    } else if bytesEqual(name, "--print-requests") {
      printsRequests = true
    } else if bytesEqual(name, "--exit-with-stdin") {
      exitWithStdin = true
    } else {
      return false
    }
    return true
  }

  /// Removes the prefix from a request's `path`. Empty: the path does not begin with the prefix.
  func withoutPrefix(_ path: ByteView) -> ByteView {
    if prefix.isEmpty { return path }
    let isBelow = bytesEqual(part(path, 0, prefix.count), prefix)
    return part(path, isBelow ? prefix.count : path.count, path.count)
  }

  private func isKnown(_ name: ByteView) -> Bool {
    let known: [StaticString] = [
      "--listen", "--cert", "--key", "--client-ca", "--script", "--times", "--answer-type", "--prefix",
      "--http", "--max-concurrent-streams", "--max-message-bytes", "--stream-window", "--max-frame-bytes",
    ]
    for option in known where bytesEqual(name, option) { return true }
    return false
  }

  /// Sets the option `name`. False: the option can't have this value.
  private mutating func set(_ name: ByteView, _ value: ByteView) -> Bool {
    if value.isEmpty { return false }
    if bytesEqual(name, "--listen") {
      listen = value
    } else if bytesEqual(name, "--cert") {
      certificate = value
    } else if bytesEqual(name, "--key") {
      key = value
    } else if bytesEqual(name, "--client-ca") {
      clientCA = value
    } else if bytesEqual(name, "--script") {
      script = value
    } else if bytesEqual(name, "--answer-type") {
      answerType = value
    } else if bytesEqual(name, "--http") {
      http = bytesEqual(value, "2") ? .http2 : bytesEqual(value, "1.1") ? .http1 : .auto
      return http != .auto || bytesEqual(value, "auto")
    } else if bytesEqual(name, "--prefix") {
      prefix = value
      return value.first == 0x2F && value.last != 0x2F
    } else {
      guard let number = decimal(value) else { return false }
      if bytesEqual(name, "--max-concurrent-streams") {
        maxConcurrentStreams = number
        return number > 0
      } else if bytesEqual(name, "--max-message-bytes") {
        maxMessageBytes = number
      } else if bytesEqual(name, "--times") {
        times = number
        return number > 0
      } else if bytesEqual(name, "--stream-window") {
        streamWindow = number
        return number > 0
      } else {
        maxFrameBytes = number
        return number >= 16384 && number < 1 << 24
      }
    }
    return true
  }
}
