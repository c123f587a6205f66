import PenstockWire
import Synchronization

/// The hops of one call, in the order of its chain. When the call has ended, the chain keeps the row (this
/// object) for a later call: making the hops anew for each call would cost 600 instructions.
///
/// Each hop refers to its row, and the row to its hops: `dissolve` breaks this reference cycle.
final class HopRow {
  /// The call, as an uncounted reference. The call exists as long as it runs, and as long as `retained` holds it.
  fileprivate(set) unowned(unsafe) var call: Call
  /// The call again, as a counted reference, if a user may keep a hop for longer than the call runs.
  var retained: Call?
  fileprivate var next: Unmanaged<HopRow>?
  private(set) var hops = Hops()
  /// The `Face` that all hops of the run (the hops that count together) have in common. Any thread reads it;
  /// only the driving thread writes it.
  let face = Atomic<UInt8>(Face.waiting.rawValue)
  /// Whether a later call must not use these hops again: somebody keeps a reference to one of them, which
  /// another thread may release, or some hops were made anew. Any thread sets this while it knows that the
  /// call has not ended.
  let isSpent = Atomic<Bool>(false)
  /// Hops that newer ones have replaced. An event may still be on its way through one of them.
  private var replaced: [Hop] = []
  /// Whether code has used a hop of the row, through its handle or for `create`. If not, nobody can have a
  /// reference to a hop, and no hop was written to. Any thread.
  let wasLookedAt = Atomic<Bool>(false)

  fileprivate init(_ call: Call, _ entries: [Chain.Entry]) {
    self.call = call
    let base = UnsafeMutablePointer<Unmanaged<Hop>>.allocate(capacity: entries.count)
    for (index, entry) in entries.enumerated() {
      (base + index).initialize(to: .passRetained(Hop(self, index, entry)))
    }
    hops = Hops(base: base, count: entries.count)
  }

  /// Releases the hops. Called when no call uses the row any more.
  func dissolve() {
    for index in 0..<hops.count { hops.at(index).release() }
    hops.base?.deallocate()
    hops = Hops()
    replaced = []
  }

  /// Puts `fresh` in the place of `old`; `old` is kept until `forgetReplaced`.
  func replace(_ old: Hop, by fresh: Hop) {
    old.lend()
    replaced.append(old)
    hops.at(old.index).release()
    hops.base.unsafelyUnwrapped[old.index] = .passRetained(fresh)
  }

  /// Releases the replaced hops. Called when no event is on its way through a hop.
  func forgetReplaced() { if !replaced.isEmpty { replaced = [] } }

  /// Access to the hops of a row without a counted reference to the row.
  struct Hops: RandomAccessCollection {
    fileprivate(set) var base: UnsafeMutablePointer<Unmanaged<Hop>>?
    var count = 0

    var startIndex: Int { 0 }
    var endIndex: Int { count }

    @inline(__always)
    func at(_ index: Int) -> Unmanaged<Hop> {
      assert(index >= 0 && index < count)
      return base.unsafelyUnwrapped[index]
    }

    /// Whether only the row has a reference to the hop.
    fileprivate func isUniquelyReferenced(_ index: Int) -> Bool {
      UnsafeMutableRawPointer(base.unsafelyUnwrapped).withMemoryRebound(to: Hop.self, capacity: count) {
        isKnownUniquelyReferenced(&$0[index])
      }
    }

    subscript(index: Int) -> Hop { at(index).takeUnretainedValue() }
  }
}

extension Chain {
  /// The rows of a chain (`HopRow`: the hops of one call) that no call uses at present. Used on the driving
  /// thread. The stock may outlive its chain, so that a call can still give back its row; the row is then
  /// freed.
  final class Stock {
    let table: UnsafePointer<Callbacks>
    /// Needed because the chain may be released on one thread while a call gives back its row on another.
    private let lock = SpinLock()
    private var first: Unmanaged<HopRow>?
    private var kept = 0
    private var isOpen = true
    /// The largest number of hops in all kept rows. A thousand hops take about 300 KiB, and each method has
    /// its own stock if filters differ by method. A long chain keeps more hops, so that a hundred calls with
    /// 32 hops find a row each: with a limit of 1,024 every second of these calls would make its row anew,
    /// and cost a third more.
    private let limit: Int

    init(_ entries: [Chain.Entry]) {
      limit = min(max(1024, 128 * entries.count), 4096)
      let table = UnsafeMutablePointer<Callbacks>.allocate(capacity: 1)
      table.initialize(to: Callbacks(entries))
      self.table = UnsafePointer(table)
    }

    deinit {
      table.pointee.deallocate()
      table.deallocate()
    }

    /// Returns a kept row for a call of this chain, or makes one if none is kept.
    func take(_ call: Call) -> Unmanaged<HopRow> {
      guard let row = first else { return .passRetained(HopRow(call, call.chain?.entries ?? [])) }
      row._withUnsafeGuaranteedRef {
        first = $0.next
        kept -= $0.hops.count
        $0.call = call
      }
      return row
    }

    /// Takes back the row of a call whose hops no other thread has. The call still has its chain, so the
    /// stock is open. Returns false if the stock is full.
    func givePrivate(_ row: Unmanaged<HopRow>) -> Bool {
      row._withUnsafeGuaranteedRef {
        let total = kept + $0.hops.count
        if total > limit { return false }
        kept = total
        $0.next = first
        first = row
        return true
      }
    }

    /// Takes back a row after the call's last step. The row is freed, and not used again, if somebody else
    /// has one of its hops or another thread has had one.
    func give(_ owned: Unmanaged<HopRow>, of call: Call, runLength: Int) {
      let row = owned.takeUnretainedValue()
      var isFree = kept + row.hops.count <= limit && !row.isSpent.load(ordering: .relaxed)
      for index in row.hops.indices {
        row.hops.at(index)._withUnsafeGuaranteedRef { hop in
          if row.hops.isUniquelyReferenced(index), !hop.hasExecutors {
            if index < runLength { hop.renewInRun() }
          } else {
            isFree = false
          }
        }
      }
      guard isFree else {
        row.retained = call
        Stock.drop(owned)
        return
      }
      for index in runLength..<max(row.hops.count, runLength) { row.hops[index].renew() }
      row.retained = nil
      row.wasLookedAt.store(false, ordering: .relaxed)
      lock.lock()
      let isTaken = isOpen
      if isTaken {
        // The stock is open, so the chain and its registrations still exist.
        if table.pointee.hasCreate { for index in 0..<runLength { row.hops[index].resetState() } }
        for index in runLength..<max(row.hops.count, runLength) { row.hops[index].begin() }
        row.next = first
        first = owned
        kept += row.hops.count
      }
      lock.unlock()
      if !isTaken { Stock.drop(owned) }
    }

    /// Frees the kept rows, and keeps no more. Called when the chain is released; its registrations exist
    /// until `close` returns. Any thread.
    func close() {
      lock.lock()
      isOpen = false
      var next = first
      first = nil
      lock.unlock()
      while let row = next {
        next = row._withUnsafeGuaranteedRef { $0.next }
        Stock.drop(row)
      }
    }

    static func drop(_ row: Unmanaged<HopRow>) {
      row._withUnsafeGuaranteedRef { $0.dissolve() }
      row.release()
    }
  }
}
