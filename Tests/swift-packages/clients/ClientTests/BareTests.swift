import Bare
import Penstock
import Testing

/// A client whose messages have no package, and names that Penstock and clients have, too.
@Suite(.timeLimit(.minutes(15))) struct BareTests {
  @Test func messagesMayHaveNamesOfPenstock() async throws {
    try await withChannel { channel in
      let bare = BareClient(channel)
      let seen = Penstock.CallOptions.asking(["x-echo-metadata": "1"])
      await isUnimplemented("/Bare/Send") {
        let _: Methods = try await bare.send(MadeClientTests.all([Requests()]), options: seen)
      }
      await isUnimplemented("/Bare/Methods") {
        _ = try await MadeClientTests.read(bare.methods(MadeClientTests.all([Methods()]), options: seen))
      }
      await isUnimplemented("/Bare/Others") { _ = try await bare.others(Bare.Channel(), options: seen) }
      await isUnimplemented("/Bare/More") { _ = try await bare.more(Bare.CallOptions(), options: seen) }
      #expect(BareClient.Methods_.more.path == "/Bare/More")
    }
  }
}
