import PenstockWire
import Testing

@testable import PenstockCall

@Suite struct RequestTests {
  @Test(arguments: [
    ("/a/b", true), ("/pkg.Service/Method", true), ("/a/b/c", true), ("", false), ("/", false), ("/a", false),
    ("/a/", false), ("//b", false), ("a/b", false), ("/a b/c", false), ("/a/b\u{7f}", false), ("/ä/b", false),
    ("/a/\t", false), ("/a/b?c", false), ("/a?/b", false), ("/a/b#", false),
    ("/a/!\"$%&'()*+,-.:;<=>@[\\]^_`{|}~", true),
  ])
  func pathIsServiceAndMethod(_ path: String, _ isValid: Bool) {
    #expect(with(path) { Request.isValidPath($0) } == isValid)
  }

  @Test func keepsCopiesWithANul() {
    let request = with("/a/b") { Request(kind: .bidi, path: $0, metadata: Metadata(), deadline: nil)! }
    #expect(text(request.pathView) == "/a/b")
    #expect(request.path.view.last == 0)
    #expect(request.authorityView == nil)
    #expect(with("host:1") { request.setAuthority($0) })
    #expect(request.authorityView.map(text) == "host:1")
    #expect(with("/c/d") { request.setPath($0) })
    #expect(text(request.pathView) == "/c/d")
  }

  @Test func kindsSayHowManyMessages() {
    #expect(CallKind.unary.sendsOne && CallKind.unary.receivesOne)
    #expect(!CallKind.clientStream.sendsOne && CallKind.clientStream.receivesOne)
    #expect(CallKind.serverStream.sendsOne && !CallKind.serverStream.receivesOne)
    #expect(!CallKind.bidi.sendsOne && !CallKind.bidi.receivesOne)
  }
}

@Suite struct MethodFilterTests {
  @Test(arguments: [
    ("/a/b", "/a/b", true), ("/a/b", "/a/c", false), ("/a/*", "/a/c", true), ("/a/*", "/a/", true),
    ("/a/*", "/ab/c", false), ("*", "/x/y", true), ("/a/b, /c/*", "/c/d", true),
    (" /a/b ,/c/d", "/a/b", true),
    ("/a/b,/c/d", "/e/f", false), ("/a/b", "/a/bc", false), ("/pkg.S*", "/pkg.Svc/M", true),
  ])
  func matches(_ pattern: String, _ path: String, _ isMatch: Bool) {
    let filter = with(pattern) { MethodFilter(ByteBuffer(copying: $0)!) }
    #expect(with(path) { filter?.matches($0) } == isMatch)
  }

  @Test(arguments: [
    "", "a/b", "/a/*b", "/a/b,", ",", "/a/**", "/a/b,,/c/d", "* ,x", "/a", "/pkg.Service", "/a/", "/", "//a",
    "/a/b,/pkg.Service", "/pkg.Service,/a/b", "/a b/c", "/a b/*", "/a?/*", "/a/b#", "/ä/*", "a*",
  ])
  func refuses(_ pattern: String) {
    #expect(with(pattern) { MethodFilter(ByteBuffer(copying: $0)!) } == nil)
  }

  @Test func knowsWhenItMatchesEverything() {
    #expect(MethodFilter().matchesEverything)
    #expect(with("*") { MethodFilter(ByteBuffer(copying: $0)!)!.matchesEverything })
    #expect(!with("/a/*") { MethodFilter(ByteBuffer(copying: $0)!)!.matchesEverything })
    #expect(with("/a/b") { MethodFilter().matches($0) })
  }
}
