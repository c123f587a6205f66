import PenstockWire
import Testing

@testable import PenstockCall

/// Tests of the rules for requests: HTTP methods, labels, settings, filters, and the bytes of paths.
@Suite struct RequestRuleTests {
  private static let kinds: [CallKind] = [.unary, .clientStream, .serverStream, .bidi]

  @Test func onlyConnectCallsByGET() {
    for rpc in [.grpc, .grpcWeb, .grpcWebText, .connect] as [RPCProtocol] {
      for kind in Self.kinds {
        for idempotency in [.unknown, .idempotent, .noSideEffects] as [Idempotency] {
          for use in [.allowed, .forbidden, .sent, .passedOver] as [GETUse] {
            let request = with("/a/b") { Request(kind: kind, path: $0, metadata: Metadata(), deadline: nil)! }
            request.settings.idempotency = idempotency
            request.settings.getUse = use
            let isSafe = rpc == .connect && kind == .unary && idempotency == .noSideEffects
            #expect(rpc.wantsGET(request) == (isSafe && use != .forbidden))
            let isGET = use == .sent || isSafe && use == .allowed
            #expect(text(rpc.httpMethod(kind, request.settings).bytes) == (isGET ? "GET" : "POST"))
          }
        }
      }
      #expect(rpc.needsHTTP2 == (rpc == .grpc))
    }
  }

  @Test func settingsInOneByteKeepEachOther() {
    var settings = CallSettings()
    #expect(!settings.waitsForReady && settings.getUse == .allowed && settings.allowsGET)
    for use in [.forbidden, .sent, .passedOver, .allowed] as [GETUse] {
      for waits in [true, false, true] {
        settings.waitsForReady = waits
        settings.getUse = use
        #expect(settings.waitsForReady == waits && settings.getUse == use)
        #expect(settings.allowsGET == (use != .forbidden))
        settings.waitsForReady = !waits
        #expect(settings.waitsForReady != waits && settings.getUse == use)
      }
    }
    settings.allowsGET = false
    #expect(settings.getUse == .forbidden)
    settings.allowsGET = true
    #expect(settings.getUse == .allowed)
  }

  private func request() -> Request {
    with("/a/b") { Request(kind: .unary, path: $0, metadata: Metadata(), deadline: nil)! }
  }

  @Test func aRequestKnowsWhetherItHasOnlyDefaults() {
    #expect(request().hasOnlyDefaults)
    let labelled = request()
    #expect(with("a") { labelled.setAuthority($0) } && !labelled.hasOnlyDefaults)
    let described = request()
    #expect(with("a") { described.metadata.add($0, $0) } == .ok && !described.hasOnlyDefaults)
    let trusted = request()
    trusted.settings.credentials = Metadata()
    #expect(!trusted.hasOnlyDefaults)
    let repeated = request()
    repeated.previousAttempts = 1
    #expect(!repeated.hasOnlyDefaults)
  }

  @Test func labelsChangeOneByOne() {
    let given = request()
    let type = with("json") { RequestLabels.contentType($0) }
    #expect(type.map { text($0.view) } == "application/grpc+json\0")
    let labels = RequestLabels(authority: nil, contentType: type, userAgent: buffer("me\0"))
    #expect(labels.subtype.map { text($0) } == "json" && !labels.isForm)
    #expect(RequestLabels(authority: nil, contentType: nil, userAgent: nil).subtype == nil)
    #expect(with("a:1") { given.setAuthority($0) })
    given.takeLabels(of: labels)
    #expect(given.authorityView.map { text($0) } == "a:1")
    #expect(given.labels?.contentType === type && given.labels?.userAgent === labels.userAgent)
    #expect(with("b:2") { given.setAuthority($0) })
    #expect(given.authorityView.map { text($0) } == "b:2")
    #expect(given.labels?.contentType === type && given.labels?.userAgent === labels.userAgent)
  }

  @Test func bytesOfPathsAndAuthorities() {
    for byte in 0...255 as ClosedRange<UInt8> {
      let isVisible = byte > 0x20 && byte < 0x7f
      let isPath = isVisible && byte != 0x3f && byte != 0x23
      #expect(Request.isPathByte(byte) == isPath)
      #expect(with([0x61, byte]) { Request.isValidAuthority($0) } == isVisible)
      #expect(with([0x2f, 0x61, 0x2f, byte]) { Request.isValidPath($0) } == (isPath && byte != 0x2f))
      #expect(with([0x2f, byte, 0x2f, 0x61]) { Request.isValidPath($0) } == isPath)
    }
    #expect(!with("") { Request.isValidAuthority($0) })
  }

  @Test func filtersOfKinds() {
    for mask in 0..<32 as Range<UInt32> {
      let filter = CallFilter(kinds: mask)
      let chosen = mask & 15 == 0 ? 15 : mask & 15
      #expect(filter.kinds == chosen && filter.matchesEverything == (chosen == 15))
      for kind in Self.kinds {
        let isChosen = chosen & (1 << UInt32(kind.rawValue)) != 0
        #expect(with("/a/b") { filter.matches($0, kind) } == isChosen)
        let other = CallFilter(MethodFilter(buffer("/c/*"))!, kinds: mask)
        #expect(!other.matchesEverything && !with("/a/b") { other.matches($0, kind) })
        #expect(with("/c/d") { other.matches($0, kind) } == isChosen)
      }
    }
  }
}
