import PenstockChannel
import PenstockWire
import PenstockNames

/// The text about the addresses of a channel: for calls that fail because no address can be connected to, and for
/// those that wait for a connection. It has each address with its last failure, the number of failures, and the time
/// until the next attempt to connect.
enum ConnectReport {
  private static let mostTold = 8

  static func words(_ name: ByteBuffer, _ endpoints: [Subchannel], now: UInt64) -> ByteBuffer {
    let text = ByteBuffer().say("could not connect to ")
    say(name, endpoints, now: now, to: text)
    return text
  }

  /// Appends the name and the failures to `text`.
  static func say(_ name: ByteBuffer, _ endpoints: [Subchannel], now: UInt64, to text: ByteBuffer) {
    text.say(name.view)
    var failed = 0
    var times = 0
    var next = UInt64.max
    for endpoint in endpoints {
      if let (count, retry) = endpoint.failures {
        times = max(times, count)
        next = min(next, retry)
      }
      guard let words = endpoint.trouble else { continue }
      failed += 1
      if failed > mostTold { continue }
      let address = ByteBuffer().say(endpoint.address.text())
      text.say(failed == 1 ? ": " : "; ")
      // If the target itself is the address, the text already has it, so it is not repeated.
      if endpoints.count > 1 || !ends(name.view, with: address.view) { text.say(address.view).say(": ") }
      withExtendedLifetime(words) { _ = text.say(words.view) }
    }
    if failed > mostTold { text.say("; and ").say(failed - mostTold).say(" more") }
    if times > 1 { text.say("; failed ").say(times).say(" times") }
    if next != .max { text.say("; next attempt in ").say(unsigned: wait(next, now)).say(" ms") }
  }

  /// The time from `now` to `next` in milliseconds, rounded up to two significant digits.
  static func wait(_ next: UInt64, _ now: UInt64) -> UInt64 {
    guard next > now else { return 0 }
    let exact = (next - now) / 1_000_000
    var unit: UInt64 = 1
    while exact / unit >= 100 { unit *= 10 }
    return (exact + unit - 1) / unit * unit
  }

  /// Whether the target `name` consists of just this address: "ipv4:127.0.0.1:1" for "127.0.0.1:1", or
  /// "unix:///a" for "unix:/a".
  private static func ends(_ name: ByteView, with address: ByteView) -> Bool {
    let unix = ("unix:" as StaticString).bytes
    let isUnix =
      address.count > unix.count && bytesEqual(ByteView(rebasing: address.prefix(unix.count)), unix)
    let bare = ByteView(rebasing: address.dropFirst(isUnix ? unix.count : 0))
    return bytesEqual(ByteView(rebasing: name.suffix(bare.count)), bare)
  }
}
