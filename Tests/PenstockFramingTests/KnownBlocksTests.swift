import CPenstockNghttp2
import PenstockCall
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockFraming
@testable import PenstockHTTP
@testable import PenstockLoop

/// Tests of requests with kept header blocks, which nghttp2 does not encode again. A peer must decode the
/// right fields from them.
@Suite struct KnownBlocksTests {
  /// An HPACK decoder, as the peer has it.
  final class Inflater {
    private var handle: OpaquePointer?

    init() { #expect(nghttp2_hd_inflate_new(&handle) == 0) }
    deinit { nghttp2_hd_inflate_del(handle) }

    func resize(_ size: Int) { #expect(nghttp2_hd_inflate_change_table_size(handle, size) == 0) }

    /// Decodes a header block, and returns its fields; nil: the block is malformed.
    func read(_ block: [UInt8]) -> [String]? {
      var rest = block[...]
      var fields: [String] = []
      while true {
        var field = nghttp2_nv()
        var flags: Int32 = 0
        let taken = rest.withUnsafeBufferPointer {
          nghttp2_hd_inflate_hd2(handle, &field, &flags, $0.baseAddress, $0.count, 1)
        }
        guard taken >= 0 else { return nil }
        rest = rest.dropFirst(taken)
        if UInt32(flags) & NGHTTP2_HD_INFLATE_EMIT.rawValue != 0 {
          let name = ByteView(start: field.name, count: field.namelen)
          let value = ByteView(start: field.value, count: field.valuelen)
          fields.append("\(text(name)!): \(text(value)!)")
        }
        if UInt32(flags) & NGHTTP2_HD_INFLATE_FINAL.rawValue != 0 { break }
      }
      return nghttp2_hd_inflate_end_headers(handle) == 0 ? fields : nil
    }
  }

  class Caller: StreamOwner {
    let request: Request
    let defaults: RequestDefaults
    let compression: Compression

    init(_ request: Request, _ defaults: RequestDefaults, _ compression: Compression = .identity) {
      self.request = request
      self.defaults = defaults
      self.compression = compression
    }

    override func streamOpens(_ stream: TransportStream, _ fields: FieldList) -> Bool {
      framing().requestHeaders(request, defaults, now: 0, into: fields)
    }

    override func streamReceives(head: HeaderBlock, endsStream: Bool) {}
    override func streamReceives(trailers: HeaderBlock) {}
    override func streamReceives(_ bytes: ByteView) -> Int { 0 }
    override func streamChanged(_ stream: TransportStream) {}

    func framing() -> Framing { GRPCFraming(compression: compression, maxReceiveBytes: 100) }

    /// The fields that the peer must decode.
    func fields() -> [String] {
      let list = FieldList()
      let isMade = framing().requestHeaders(request, defaults, now: 0, into: list)
      #expect(isMade)
      return (0..<list.count).map { "\(text(list.name(at: $0))!): \(text(list.value(at: $0))!)" }
    }
  }

  /// A call of the defaults' protocol, with a message of this size.
  final class OtherCaller: Caller {
    let size: Int

    init(_ request: Request, _ defaults: RequestDefaults, size: Int) {
      self.size = size
      super.init(request, defaults)
    }

    override func framing() -> Framing {
      let framing = Framings().make(request, defaults)
      _ = framing.encode(buffer([UInt8](repeating: 1, count: size)))
      return framing
    }
  }

  /// A session that has received the peer's SETTINGS, and a peer that decodes all output of the session.
  final class Pair {
    let session: HTTP2Session
    let inflater = Inflater()
    var callers: [Int32: Caller] = [:]
    var streams: [HTTP2Stream] = []
    private var sizes: [Int] = []
    private var sent = 0

    init(_ limits: TransportLimits = TransportLimits()) throws {
      session = try #require(HTTP2Session.make(limits))
      for _ in 0..<4 { _ = take() }
      settings([])
      try read()
    }

    func settings(_ pairs: [(UInt16, UInt32)]) {
      sizes.append(pairs.first { $0.0 == 1 }.map { Int($0.1) } ?? -1)
      #expect(Frame.settings(pairs).encoded.withUnsafeBytes { session.receive($0) })
    }

    /// `count`: the size of the request's message; -1: there is none.
    func add(_ caller: Caller, bytes count: Int = 3) {
      let stream = HTTP2Stream()
      stream.owner = caller
      if count >= 0 {
        let body = buffer([UInt8](repeating: 7, count: count))
        stream.append(BodyPiece(compressed: false, body, length: UInt32(count)))
      }
      stream.endsAfterPieces = true
      streams.append(stream)
      session.add(stream)
    }

    private func take() -> [UInt8] {
      let out = SendQueue(copies: true)
      let alive = session.collect(into: out) != .failed
      #expect(alive, "\(text(session.failure) ?? "")")
      return [UInt8](out.bytes.view)
    }

    /// Collects and decodes all output. Returns the length of each header block.
    @discardableResult
    func read() throws -> [Int] {
      var bytes: [UInt8] = []
      repeat { bytes += take() } while session.wantsWrite
      for stream in streams where stream.id > 0 { callers[stream.id] = stream.owner as? Caller }
      var lengths: [Int] = []
      for frame in try #require(Frame.all(bytes)) {
        if frame.type == 4, frame.flags & 1 != 0 {
          let size = sizes.removeFirst()
          if size >= 0 { inflater.resize(size) }
        }
        guard frame.type == 1 else { continue }
        let fields = try #require(inflater.read(frame.payload))
        #expect(frame.flags == (fields.first == ":method: GET" ? 5 : 4))
        #expect(fields == callers[frame.stream]?.fields())
        lengths.append(frame.payload.count)
      }
      return lengths
    }

    func end() {
      session.abandon(bytes("over"))
      session.dispatch()
    }
  }

  let defaults = RequestDefaults(
    privacy: .cleartext, authority: bytes("host:1"), userAgent: bytes("penstock/1"))

  static func request(_ path: String, _ fields: [(String, String)] = [], deadline: UInt64? = nil) -> Request {
    let metadata = Metadata()
    for (name, value) in fields {
      let (name, value) = (bytes(name), bytes(value))
      _ = metadata.add(name.view, value.view)
    }
    let path = bytes(path)
    return Request(kind: .unary, path: path.view, metadata: metadata, deadline: deadline)!
  }

  func isKnown(_ pair: Pair, _ path: String) -> Bool {
    let path = KnownBlocksTests.request(path).path
    pair.session.request.blocks.isUsable = true
    return pair.session.request.blocks.find(defaults, path) != nil
  }

  @Test func knownFromTheSecondOn() throws {
    let pair = try Pair()
    func caller(_ path: String) -> Caller {
      Caller(KnownBlocksTests.request(path), defaults)
    }
    pair.add(caller("/a.B/C"))
    _ = try pair.read()
    #expect(!isKnown(pair, "/a.B/C"))
    for path in ["/a.B/C", "/a.B/Other"] {
      pair.add(caller(path))
      _ = try pair.read()
      #expect(isKnown(pair, path))
    }
    #expect(isKnown(pair, "/a.B/C") && !isKnown(pair, "/a.B/D"))
    // All three requests use kept header blocks, in one turn.
    for path in ["/a.B/C", "/a.B/Other", "/a.B/C"] { pair.add(caller(path)) }
    let lengths = try pair.read()
    #expect(lengths.count == 3 && lengths[0] == lengths[2] && lengths[0] < 20)
    // The timeout field must be inserted at the right place in the kept block.
    for deadline: UInt64 in [1, 1_000_000, 12_345_678_000] {
      pair.add(Caller(KnownBlocksTests.request("/a.B/C", deadline: deadline), defaults))
    }
    let longer = try pair.read()
    #expect(longer.first == lengths[0] + 14 && isKnown(pair, "/a.B/C"))
    // A field that enters HPACK's table makes all kept blocks invalid, and so do SETTINGS of the peer.
    pair.add(Caller(KnownBlocksTests.request("/a.B/C", [("x", "y")]), defaults))
    _ = try pair.read()
    #expect(!isKnown(pair, "/a.B/C"))
    pair.add(caller("/a.B/C"))
    _ = try pair.read()
    #expect(isKnown(pair, "/a.B/C"))
    pair.settings([(1, 0)])
    #expect(!isKnown(pair, "/a.B/C"))
    pair.add(caller("/a.B/C"))
    _ = try pair.read()
    pair.end()
  }

  /// A kept block is stored without the timeout, even if it was made for a request with a timeout.
  @Test func learnsWithoutTheTimeout() throws {
    let pair = try Pair()
    for deadline: UInt64? in [5, 5, nil, 7_000_000] {
      pair.add(Caller(KnownBlocksTests.request("/a.B/C", deadline: deadline), defaults))
      _ = try pair.read()
    }
    #expect(isKnown(pair, "/a.B/C"))
    let path = KnownBlocksTests.request("/a.B/C").path
    let list = FieldList()
    let plain = KnownBlocksTests.request("/a.B/C")
    #expect(framing.requestHeaders(plain, defaults, now: 0, into: list))
    #expect(pair.session.request.blocks.find(defaults, path)?.size == list.size)
    // For a request with a timeout, the size of the list includes the timeout.
    let timed = KnownBlocksTests.request("/a.B/C", deadline: 12_345_678_000)
    #expect(framing.requestHeaders(timed, defaults, now: 0, into: list))
    let known = pair.session.request
    known.clear()
    pair.session.request.blocks.isUsable = true
    #expect(framing.requestHeaders(timed, defaults, now: 0, into: known))
    #expect(known.count == 0 && known.size == list.size)
    pair.end()
  }

  let framing = GRPCFraming(compression: .identity, maxReceiveBytes: 100)

  /// The blocks of other protocols: with a timeout, a body's length, both and neither, and those of unary calls and of
  /// streams with one path.
  @Test func otherProtocols() throws {
    let pair = try Pair()
    let all = [RPCProtocol.connect, .grpcWeb, .grpcWebText].map {
      RequestDefaults(
        privacy: .tls, authority: bytes("host:1"), userAgent: bytes("x/1"), rpc: $0, mostURLBytes: 8192)
    }
    for defaults in all {
      for kind in [CallKind.unary, .bidi] {
        for round in 0..<6 {
          let path = bytes("/a.B/C")
          let deadline: UInt64? = round % 2 == 0 ? nil : 5_000_000_000
          let request = Request(kind: kind, path: path.view, metadata: Metadata(), deadline: deadline)!
          pair.add(OtherCaller(request, defaults, size: 95 + round))
          _ = try pair.read()
          // The first two requests of a protocol fill HPACK's table, and the block of the second is kept.
          if round >= 3 {
            #expect(pair.streams.last?.block != 0, "\(defaults.rpc) \(kind) \(round)")
            // The size without the fields of a single request: the timeout, and the length of the body.
            pair.session.request.blocks.isUsable = true
            let kept = pair.session.request.blocks.find(defaults, request.path)
            let plain = Request(kind: kind, path: path.view, metadata: Metadata(), deadline: nil)!
            let list = FieldList()
            let framing = OtherCaller(plain, defaults, size: 95).framing()
            #expect(framing.requestHeaders(plain, defaults, now: 0, into: list))
            let length = (0..<list.count).first { text(list.name(at: $0)) == "content-length" }
            let ofLength = length.map { list.name(at: $0).count + list.value(at: $0).count + 32 } ?? 0
            // The other kind of Connect's calls is kept for another owner.
            if let kept { #expect(kept.size == list.size - ofLength, "\(defaults.rpc) \(kind)") }
          }
        }
        // A GET ends with its headers, and is never kept.
        let request = KnownBlocksTests.request("/a.B/C")
        request.settings.idempotency = .noSideEffects
        pair.add(OtherCaller(request, all[0], size: 3), bytes: -1)
        _ = try pair.read()
        #expect(pair.streams.last?.block == 0 && pair.streams.last?.life == .ended)
      }
    }
    pair.end()
  }

  /// The output has no room. The frame of a kept block must not wait, so no kept block is used then. None is
  /// used either while another HEADERS frame waits.
  @Test func outputWithoutRoom() throws {
    var limits = TransportLimits()
    limits.outputSize = 64
    let pair = try Pair(limits)
    func add(_ count: Int, bytes: Int = 3) {
      for _ in 0..<count {
        pair.add(Caller(KnownBlocksTests.request("/a.B/C"), defaults), bytes: bytes)
      }
    }
    for _ in 0..<2 {
      add(1)
      try pair.read()
    }
    add(20, bytes: 500)
    let out = SendQueue(copies: true)
    #expect(pair.session.collect(into: out) != .failed)
    #expect(out.count > 64 && pair.streams.allSatisfy { $0.hasLeft })
    // The next frame is a DATA frame, but `out` is full, so the frame stays in the session.
    #expect(pair.session.collect(into: out) != .failed)
    #expect(pair.streams.contains { $0.bytesToSend > 0 })
    add(1)
    #expect(pair.session.collect(into: out) != .failed)
    let last = try #require(pair.streams.last)
    #expect(last.id > 0 && !last.hasLeft)
    pair.settings([(1, 0)])
    #expect(try pair.read().count == 1)
    pair.end()
  }

  /// In one turn more requests are sent than the session stores in its list of recent streams.
  @Test func manyInOneTurn() throws {
    let pair = try Pair()
    for count in [1, 1, 3 * HTTP2Session.recentStreams] {
      for _ in 0..<count { pair.add(Caller(KnownBlocksTests.request("/a.B/C"), defaults)) }
      #expect(try pair.read().count == count)
    }
    #expect(pair.streams.dropFirst(2).allSatisfy { $0.block > 0 })
    pair.end()
  }

  /// The peer's limit on the size of the header list also applies to a request with a kept block.
  @Test func limitOfTheList() throws {
    let pair = try Pair()
    for _ in 0..<3 {
      pair.add(Caller(KnownBlocksTests.request("/a.B/C"), defaults))
      _ = try pair.read()
    }
    pair.settings([(6, 100)])
    pair.add(Caller(KnownBlocksTests.request("/a.B/C"), defaults))
    #expect(try pair.read() == [])
    guard case .requestTooLarge(let size, 100) = pair.streams[3].end else {
      Issue.record("not too large")
      return
    }
    #expect(size > 300)
    pair.end()
  }

  /// Random events between requests: other paths and fields, SETTINGS, requests that end before they are
  /// sent, and full output.
  @Test(arguments: 0..<60)
  func random(_ seed: Int) throws {
    var random = SplitMix(state: UInt64(seed))
    func next(_ bound: Int) -> Int { random.next(below: bound) }
    var limits = TransportLimits()
    limits.outputSize = next(2) == 0 ? 200 : 1 << 18
    let pair = try Pair(limits)
    let other = RequestDefaults(privacy: .tls, authority: bytes("other:2"), userAgent: bytes("x/1"))
    let connect = RequestDefaults(
      privacy: .tls, authority: bytes("host:1"), userAgent: bytes("x/1"), rpc: .connect, mostURLBytes: 200)
    let full = SendQueue(copies: true)
    let zeros = buffer([UInt8](repeating: 0, count: limits.outputSize))
    #expect(withExtendedLifetime(zeros) { full.append(zeros.view) })
    let paths = 1 + next(12)
    for _ in 0..<60 {
      for _ in 0..<(1 + next(4)) {
        let path = "/a.B/" + String(repeating: "m", count: 1 + next(paths)) + "\(next(paths))"
        switch next(12) {
        case 0:
          pair.add(
            Caller(
              KnownBlocksTests.request(path, [("x-\(next(8))", String(repeating: "v", count: next(300)))]),
              defaults))
        case 1, 4: pair.add(Caller(KnownBlocksTests.request(path, deadline: UInt64(next(1 << 40))), defaults))
        case 2: pair.add(Caller(KnownBlocksTests.request(path), defaults, .gzip))
        case 3 where next(2) == 0: pair.add(Caller(KnownBlocksTests.request(path), other))
        case 5, 6:
          let request = KnownBlocksTests.request(path, deadline: next(2) == 0 ? nil : UInt64(next(1 << 40)))
          let mayGet = next(4) == 0
          if mayGet { request.settings.idempotency = .noSideEffects }
          pair.add(OtherCaller(request, connect, size: next(300)), bytes: mayGet ? -1 : 3)
        default: pair.add(Caller(KnownBlocksTests.request(path), defaults))
        }
      }
      if next(6) == 0 {
        // nghttp2 has the request now, but the output has no room for it.
        #expect(pair.session.collect(into: full) != .failed)
        for stream in pair.streams where stream.id > 0 && !stream.hasLeft && next(3) == 0 {
          pair.callers[stream.id] = nil
          pair.session.letGo(stream, .cancelled)
        }
      }
      if next(10) == 0 { pair.settings([(1, UInt32([0, 60, 200, 4096, 10000][next(5)]))]) }
      _ = try pair.read()
    }
    #expect(pair.session.failure == nil && pair.session.open.allSatisfy { $0.hasLeft })
    pair.end()
  }

  @Test func whatChangesTheTable() {
    func offset(_ block: [UInt8], _ index: Int = .max) -> Int? {
      block.withUnsafeBytes { KnownBlocks.offset(in: $0, of: index) }
    }
    let blocks: [[UInt8]] = [
      [], [0x83, 0x86, 0xfe], [0x83, 0x04, 0x82, 1, 2, 0xbe], [0x14, 0], [0, 1, 0x41, 0x81, 0xff, 0x83],
      [0x10, 0, 0], [0x0f, 0, 0], [0x1f, 0x0d, 1, 0x33],
    ]
    for block in blocks { #expect(offset(block) == block.count) }
    #expect(offset(blocks[2], 0) == 0 && offset(blocks[2], 1) == 1 && offset(blocks[2], 2) == 5)
    // Blocks that `offset` must refuse: with fields for HPACK's table, with a change of the table's size,
    // with integers of more than one byte, and truncated blocks.
    let others: [[UInt8]] = [
      [0x44, 0], [0x83, 0x40, 0, 0], [0x3f, 0xe1, 0x1f], [0x20], [0xff, 0], [0x0f], [0x0f, 0x80, 1, 0],
      [0x0f, 0], [0x04, 0x7f, 0],
      [0x04, 0xff, 0], [0x04], [0x04, 2, 1], [0, 1, 0x41], [0, 1], [0],
    ]
    for block in others { #expect(offset(block) == nil) }
    // A length of 127 or more goes on in the next byte, also where the block has as many bytes as its first byte says.
    let text = [UInt8](repeating: 0x61, count: 200)
    #expect(offset([0x04, 0x7e] + text[..<0x7e]) == 0x80)
    for count in [0x7e, 0x7f, 0x80, 200] {
      #expect(offset([0x04, 0x7f, 0x00] + text[..<count]) == nil)
      #expect(offset([0x04, 0xff, 0x00] + text[..<count]) == nil)
      #expect(offset([0x00, 0x7f, 0x00] + text[..<count] + [1, 0x41]) == nil)
    }
    #expect(offset(others[1], 1) == 1)
  }
}

extension HTTP2Stream {
  /// Whether the HEADERS frame of the stream was sent.
  fileprivate var hasLeft: Bool { life.isOpen && life != .opening && life != .openingWithBody }
}
