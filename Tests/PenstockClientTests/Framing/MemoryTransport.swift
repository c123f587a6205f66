import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockLaws
@testable import PenstockNames

@testable import PenstockHTTP
@testable import PenstockLoop
@testable import PenstockFraming
@testable import PenstockTransport

/// A connection for one call, without a network: the test acts as the peer.
final class MemoryConnection: TransportConnection {
  private(set) var stream: MemoryStream?
  override var facts: ConnectionFacts? { nil }

  override func newStream(_ owner: StreamOwner, sending pieces: consuming PieceQueue) -> TransportStream {
    #expect(stream == nil, "a second call on the connection")
    let fresh = MemoryStream(owner, sending: pieces)
    stream = fresh
    return fresh
  }
}

/// A stream without HTTP/2, sockets or an event loop. The test acts as the peer.
final class MemoryStream: TransportStream {
  private var isAsked = false
  private(set) var path: [UInt8]?
  private(set) var wasLeft = false
  private var credit = 0
  private var given = 0

  override func open() { isAsked = true }
  override func send(_ piece: BodyPiece) { append(piece) }
  override func endBody() { endsAfterPieces = true }
  override func consume(_ count: Int) {
    take(count)
    credit += count
    #expect(credit <= given)
  }
  override func leave(_ why: Leave) {
    #expect(!wasLeft)
    wasLeft = true
    letGo()
  }

  // MARK: The peer

  /// Opens the stream: asks the owner for the request's headers.
  func begin() {
    #expect(isAsked && path == nil)
    let fields = FieldList()
    #expect(owner?.streamOpens(self, fields) == true)
    for index in 0..<fields.count where text(fields.name(at: index)) == ":path" {
      path = [UInt8](fields.value(at: index))
    }
  }

  func ends(_ how: StreamEnd) {
    finish(how)
    tell()
  }

  func tell() { owner?.streamChanged(self) }

  func head(_ pairs: [(String, String)], ends: Bool = false) {
    let block = HeaderBlock()
    for (name, value) in [(":status", "200")] + pairs {
      let (name, value) = (bytes(name), bytes(value))
      block.add(name.view, value.view, limit: .max)
    }
    #expect(block.finish())
    owner?.streamReceives(head: block, endsStream: ends)
    if ends { finish(.trailers) }
    tell()
  }

  /// Passes bytes of the answer to the stream. The stream keeps the bytes that the owner does not want yet.
  func give(_ bytes: ArraySlice<UInt8>) {
    given += bytes.count
    received(bytes.count)
    bytes.withUnsafeBytes { view in
      let taken = bodyIsEmpty ? owner?.streamReceives(view) ?? 0 : 0
      credit += taken
      if taken < view.count { #expect(store(ByteView(rebasing: view[taken...]))) }
    }
  }

  /// Removes and returns `count` bytes of the request's body.
  func takeBody(_ count: Int) -> [UInt8] {
    let out = SendQueue(copies: true)
    #expect(moveBody(count, into: out))
    return [UInt8](out.bytes.view)
  }
}

/// A channel whose resolver never finds an address. The test gives each attempt its connection.
///
/// If a scenario breaks a law, it stops in the middle and its calls never end. `clear` then releases their
/// attempts.
final class MemoryChannel {
  private final class Nobody: Resolver {
    override func start(_ completion: any ResolverCompletion) {}
  }

  let runtime = makeRuntime(.host)
  let core: ChannelCore
  let opening: Framing.Opening
  /// The attempts and streams of the scenario that is being played.
  var attempts: [Attempt] = []
  var streams: [MemoryStream] = []
  var random: SplitMix

  init(_ opening: Framing.Opening, seed: UInt64) {
    self.opening = opening
    random = SplitMix(state: seed)
    let name = bytes("nowhere:1")
    guard case .target(let target) = Target.parse(name.view) else { fatalError() }
    let defaults = RequestDefaults(
      privacy: .cleartext, authority: name, userAgent: bytes("test"), framings: LineFraming.Factory(opening))
    core = ChannelCore(
      runtime, defaults, Destination(target, name, nil, TransportLimits(), ChannelOptions()), Nobody())
  }
}

extension MemoryChannel {
  /// Whether every attempt has ended, and every stream was left by its owner.
  var isClear: Bool { attempts.allSatisfy { $0.listIndex < 0 } && streams.allSatisfy { $0.wasLeft } }

  func clear() {
    for attempt in attempts where attempt.listIndex >= 0 { attempt.reset() }
    attempts = []
    streams = []
  }
}

/// The server's side of the calls in the law tests: a real `Attempt` on a stream in memory.
final class AttemptBelow: FakeBelow {
  private let bed: MemoryChannel
  private let attempt: Attempt
  private var stream: MemoryStream?
  private var said: [[UInt8]] = []
  private var isHalfClosed = false
  private var isBegun = false
  private var hasAnswered = false
  /// Whether the test ends the first stream before any byte is written, so that the attempt gets a second
  /// stream.
  private var isPickedAgain: Bool

  init(_ bed: MemoryChannel) {
    self.bed = bed
    attempt = Attempt(.passUnretained(bed.core))
    bed.attempts.append(attempt)
    isPickedAgain = bed.random.next() % 8 == 0
  }

  // MARK: From the call

  override func start(_ call: Call) {
    super.start(call)
    attempt.start(call)
    connect()
  }

  override func start(_ call: Call, saying message: Message) {
    onStart(call)
    if call.wantsMessage { onPull() }
    onSend(message)
    onHalfClose()
    said.append([UInt8](message.view))
    isHalfClosed = true
    attempt.start(call, saying: message)
    connect()
  }

  override func send(_ message: Message) {
    super.send(message)
    said.append([UInt8](message.view))
    attempt.send(message)
  }

  override func halfClose() {
    super.halfClose()
    isHalfClosed = true
    attempt.halfClose()
    connect()
    // The response may begin now, although the call has not asked for a message.
    if bed.opening == .whole { onPull() }
  }

  override func pull() {
    super.pull()
    attempt.pull()
  }

  override func reset() {
    super.reset()
    attempt.reset()
  }

  private func connect() {
    guard stream == nil, attempt.isWaiting, bed.opening == .atOnce || isHalfClosed else { return }
    let connection = MemoryConnection()
    attempt.open(on: connection)
    stream = connection.stream
    if let stream { bed.streams.append(stream) }
  }

  // MARK: From the server

  override var isOpen: Bool { isBegun }

  override func settle() -> Int {
    if isPickedAgain, let first = stream, first.owner != nil, !isBegun {
      isPickedAgain = false
      bed.streams.removeLast()
      stream = nil
      first.ends(.neverSent(bytes("refused")))
      #expect(attempt.isWaiting, "what was never sent is not picked again")
      connect()
    }
    guard let stream, stream.owner != nil, !isBegun else { return 0 }
    stream.begin()
    isBegun = true
    let told = bed.opening == .whole ? said : []
    #expect(stream.path == Array("/?".utf8) + told.flatMap { LineFraming.line($0) })
    #expect(Int(stream.piecesSent) == told.count)
    return told.count
  }

  override func headers(_ call: Call) {
    hasAnswered = true
    stream?.head([])
  }

  override func message(_ call: Call, _ message: Message) { give(LineFraming.line([UInt8](message.view))) }

  override func status(_ call: Call, _ status: Status) {
    guard let stream else { return }
    let line = LineFraming.line(status)
    if hasAnswered {
      give(line, tells: false)
      stream.ends(.body)
    } else {
      stream.head([("x-status", String(decoding: line.dropLast(), as: UTF8.self))], ends: true)
    }
  }

  override var knowsPolicies: Bool { false }

  override func refuse(_ call: Call, _ status: Status, byPolicy: Bool) {
    stream?.ends(.unprocessed(buffer([UInt8](status.message))))
  }

  override func lose(_ call: Call, _ status: Status) {
    stream?.ends(.lost(buffer([UInt8](status.message))))
  }

  override func sent(_ call: Call, _ count: Int) {
    guard let stream else { return }
    if bed.opening == .atOnce {
      for _ in 0..<count {
        let line = LineFraming.line(said[Int(stream.piecesSent)])
        let cut = Int(bed.random.next() % UInt64(line.count + 1))
        #expect(stream.takeBody(cut) + stream.takeBody(line.count - cut) == line)
      }
    }
    if stream.owner?.streamSends() == true { stream.tell() }
  }

  /// Passes a line of the answer to the stream, in parts of random lengths.
  private func give(_ line: [UInt8], tells: Bool = true) {
    guard let stream else { return }
    var rest = line[...]
    while !rest.isEmpty {
      let part = rest.prefix(1 + Int(bed.random.next() % UInt64(line.count)))
      rest = rest.dropFirst(part.count)
      stream.give(part)
      if tells { stream.tell() }
    }
  }
}
