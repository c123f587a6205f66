import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockLoop
import PenstockHTTP
import PenstockFraming

/// Asks the server of one endpoint for its health, with the method Watch of grpc.health.v1 on the endpoint's
/// connection (gRFC A17). `HealthState` makes the decisions; this class carries them out. No interceptor is
/// called for this stream.
final class HealthCheck: StreamOwner {
  /// The name of the service whose health is asked for.
  let service: ByteBuffer
  private var state = HealthState.off
  /// The endpoint. The reference is not counted: the endpoint owns this object, and stops it before the
  /// endpoint is freed.
  private unowned(unsafe) let owner: Subchannel
  private unowned(unsafe) let channel: ChannelCore
  private var timer: ChannelTimer?
  private var connection: TransportConnection?
  private var request: Request?
  private var framing: Framing?
  private var stream: TransportStream?
  /// Whether the connection had answered a call before this stream began. If not, the head of this stream's
  /// answer must not count as the first answer on the connection.
  private var hadAnswered = false
  /// Whether the connection has opened the stream.
  private var hasOpened = false
  /// The most recent health value from the server, until `streamChanged` handles it.
  private var said: UInt64?
  private var status: Status?

  /// The most bytes of a message from the server. The message has only one number.
  private static let mostBytes = 1024

  init(_ service: ByteBuffer, _ owner: Subchannel, _ channel: ChannelCore) {
    self.service = service
    self.owner = owner
    self.channel = channel
    super.init()
  }

  /// The connectivity state of the endpoint while it has a connection, as the health check sees it.
  var connectivity: Connectivity { state.connectivity }

  func begin(on connection: TransportConnection?) {
    self.connection = connection
    follow(.connected(random: random))
  }

  func stop() {
    follow(.stop)
    connection = nil
  }

  /// Moves the health check to the connection `other`, if it is on another connection now.
  func move(to other: TransportConnection?) {
    if connection === other { return }
    let wasQueued = isQueued
    leave(.cancelled)
    connection = other
    // A stream that was never opened has not failed, so the new stream begins without a back-off delay.
    if wasQueued, watch() { return }
    follow(
      .ended(random: random), ByteBuffer().say("the connection of its health check accepts no more calls"))
  }

  /// Whether the health check's stream waits until its connection can open another stream.
  var isQueued: Bool {
    guard stream != nil, !hasOpened, let connection else { return false }
    return connection.slots < 0
  }

  func resetBackoff() { follow(.reset(random: random)) }

  func timeIsUp() { follow(.time(random: random)) }

  private var random: UInt64 { channel.runtime.platform.random() }

  /// Passes an event to `state`, and carries out the resulting actions. `words`: the reason why the endpoint
  /// does not count as ready.
  private func follow(_ event: HealthEvent, _ words: ByteBuffer? = nil) {
    var words = words
    let policy = channel.destination.backoff
    var actions = state.handle(event, policy, now: channel.runtime.now)
    while let action = actions.next() {
      switch action {
      case .watch:
        if !watch() {
          words = ByteBuffer().say("no memory for its health check")
          actions = state.handle(.ended(random: random), policy, now: channel.runtime.now)
        }
      case .cancel:
        timer.map { channel.runtime.disarm($0) }
        leave(.cancelled)
      case .arm(let time):
        let timer = timer ?? ChannelTimer(.ask(.passUnretained(self)))
        self.timer = timer
        channel.runtime.arm(timer, at: time)
      case .tell(let news): owner.hears(news, words)
      }
    }
  }

  /// Begins a Watch stream. False: no memory.
  private func watch() -> Bool {
    let path = ("/grpc.health.v1.Health/Watch" as StaticString).bytes
    let message = ByteBuffer()
    var writer = ProtoWriter(into: message)
    writer.bytes(1, service.view)
    guard let request = Request(kind: .serverStream, path: path, metadata: .none, deadline: nil),
      let connection, writer.isComplete
    else { return false }
    request.settings.maxReceiveBytes = HealthCheck.mostBytes
    let framing = channel.defaults.framings.make(request, channel.defaults)
    guard case .piece(let piece) = framing.encode(message) else { return false }
    var pieces = PieceQueue()
    pieces.append(piece)
    self.request = request
    self.framing = framing
    said = nil
    status = nil
    hasOpened = false
    hadAnswered = connection.hasAnswered
    let stream = connection.newStream(self, sending: pieces)
    self.stream = stream
    connection.isWatched = true
    stream.endsAfterPieces = true
    stream.open()
    return true
  }

  private func leave(_ why: Leave) {
    stream.take()?.leave(why)
    connection?.isWatched = false
    framing = nil
  }

  // MARK: From the stream

  override var isCall: Bool { false }

  override func streamOpens(_ stream: TransportStream, _ fields: FieldList) -> Bool {
    guard let request, let framing else { return false }
    hasOpened = true
    // The stream counts as duplex, so that it does not make the connection's window wide
    // (`ConnectionWindow`).
    fields.isDuplex = true
    return framing.requestHeaders(request, channel.defaults, now: channel.runtime.now, into: fields)
  }

  override func streamReceives(head block: HeaderBlock, endsStream: Bool) {
    if !hadAnswered { connection?.forgetAnswer() }
    switch framing?.responseHeaders(block, endsStream: endsStream) {
    case .ended(let ended), .foreign(let ended): status = ended
    case .informational, .headers, .statusInBody, nil: break
    }
  }

  override func streamReceives(trailers block: HeaderBlock) {
    if let ended = framing?.status(ofTrailers: block) { status = ended }
  }

  override func streamReceives(_ bytes: ByteView) -> Int {
    var rest = bytes
    while let framing, !rest.isEmpty, status == nil {
      let (consumed, step) = framing.decode(rest)
      take(step)
      while framing.isBusy { take(framing.proceed()) }
      rest = ByteView(rebasing: rest[consumed...])
    }
    return bytes.count
  }

  private func take(_ step: consuming BodyStep) {
    switch consume step {
    case .needsMore, .busy: break
    case .message(let message, _):
      said = 0
      var reader = ProtoReader(message.view)
      while case .field(let number, let value) = reader.next() {
        if number == 1, case .varint(let health) = value { said = health }
      }
    case .trailers(let ended), .failed(let ended): status = ended
    }
  }

  override func streamChanged(_ stream: TransportStream) {
    guard stream === self.stream else { return }
    if let health = said.take() {
      follow(.heard(serves: health == 1), HealthCheck.reason(health))
    }
    guard stream === self.stream, let framing else { return }
    if let end = stream.end {
      status = framing.status(end, trailers: status.take(), deadlineHasPassed: false)
    }
    guard let status = status.take() else { return }
    leave(.cancelled)
    if status.code == .unimplemented {
      channel.note(
        .ignored, owner.address,
        ByteBuffer().say("healthCheckConfig: the server has no health service, and counts as serving"))
      return follow(.unimplemented)
    }
    let words = ByteBuffer().say("its health check ended: ")
    words.say(status.message.isEmpty ? status.code.name.bytes : status.message)
    follow(.ended(random: random), words)
  }

  /// The reason why a server with this health gets no calls; nil: it serves. The numbers are those of
  /// `HealthCheckResponse.ServingStatus`.
  private static func reason(_ health: UInt64) -> ByteBuffer? {
    let said: StaticString
    switch health {
    case 1: return nil
    case 2: said = "it does not serve"
    case 3: said = "it does not know the service"
    case 0: said = "its health is unknown"
    default: said = "its health has a number that is not defined"
    }
    return ByteBuffer().say("the server says that ").say(said).say(" (health check)")
  }
}
