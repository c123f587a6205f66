import PenstockChannel
import PenstockWire
import PenstockNames

/// Fuzzes the SRV records of a DNS answer: the first byte of the input chooses the order, the rest is the
/// answer of a server. Checks that each record is taken once, by priority, and has a host name.
func fuzzDNS(_ all: ByteView) {
  guard let first = all.first, let answer = ByteBuffer(copying: ByteView(rebasing: all[1...])) else { return }
  var records = ServiceRecords(answer)
  let host = ByteBuffer()
  var random = UInt64(first)
  var priority: UInt16 = 0
  var count = 0
  while let record = records.take(random: random, into: host) {
    random = random &* 6_364_136_223_846_793_005 &+ 1
    precondition(record.priority >= priority && record.share > 0)
    priority = record.priority
    count += 1
    precondition(host.view.last == 0 && HostName.flaw(ByteView(rebasing: host.view.dropLast())) == nil)
  }
  precondition(count <= 256)
}
