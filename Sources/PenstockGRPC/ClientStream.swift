#if GRPCSwift
  import GRPCCore
  import Penstock

  /// A stream of GRPCCore: the writer of its requests, and the call that they begin.
  ///
  /// The call begins with the request's metadata. Readers may come earlier; they wait for it. Every wait ends, because the
  /// end of the stream ends it.
  final class ClientStream: ClosableRPCWriterProtocol {
    typealias Element = RPCRequestPart<[UInt8]>
    typealias BytesCall = Call<[UInt8], [UInt8]>

    private enum State {
      /// The metadata was not written; these readers wait for the call.
      case awaited([CheckedContinuation<Void, Never>])
      /// Requests may be written.
      case open(BytesCall)
      /// All requests have been written.
      case halfClosed(BytesCall)
      /// The stream ended by this error, not by the server.
      case failed(GRPCCore.RPCError)
    }

    private let channel: Channel
    private let descriptor: MethodDescriptor
    private let options: GRPCCore.CallOptions
    private let defaults: Penstock.CallOptions
    private let state = Locked(State.awaited([]))

    init(
      _ channel: Channel, _ descriptor: MethodDescriptor, _ options: GRPCCore.CallOptions,
      _ defaults: Penstock.CallOptions
    ) {
      self.channel = channel
      self.descriptor = descriptor
      self.options = options
      self.defaults = defaults
    }

    // ---- Requests ----

    func write(_ element: RPCRequestPart<[UInt8]>) async throws {
      switch element {
      case .metadata(let metadata): try begin(metadata)
      case .message(let bytes): try await send(bytes)
      }
    }

    func write(contentsOf elements: some Sequence<RPCRequestPart<[UInt8]>>) async throws {
      for element in elements { try await write(element) }
    }

    func finish() async {
      let call: BytesCall? = state.withLock { state in
        guard case .open(let call) = state else { return nil }
        state = .halfClosed(call)
        return call
      }
      if let call { return call.halfClose() }
      // Without metadata there is no call that could end; its readers must not wait for it.
      failIfNotBegun(
        GRPCCore.RPCError(code: .internalError, message: "the request ended before its metadata"))
    }

    func finish(throwing error: any Error) async {
      fail(
        error as? GRPCCore.RPCError
          ?? GRPCCore.RPCError(code: .unknown, message: "the requests failed", cause: error))
    }

    /// Starts the call.
    private func begin(_ metadata: GRPCCore.Metadata) throws {
      if let refusal = state.withLock({ refusal(of: $0) }) { throw refusal }
      let call: BytesCall
      do {
        call = try channel.call(
          Method("/" + descriptor.fullyQualifiedMethod), descriptor.kind,
          options: defaults.with(options, metadata))
        // GRPCCore writes in a task beside that of the reader.
        call.promiseHalfClose()
      } catch {
        let error = GRPCCore.RPCError(error)
        fail(error)
        throw error
      }
      let (readers, refused) = state.withLock {
        state -> ([CheckedContinuation<Void, Never>], GRPCCore.RPCError?) in
        guard case .awaited(let readers) = state else { return ([], refusal(of: state)) }
        state = .open(call)
        return (readers, nil)
      }
      for reader in readers { reader.resume() }
      guard let refused else { return }
      call.cancel(refused.message)
      throw refused
    }

    /// Why a call can't begin now; nil: it can.
    private func refusal(of state: State) -> GRPCCore.RPCError? {
      switch state {
      case .awaited: nil
      case .open, .halfClosed: misuse("the metadata of a request was written twice")
      case .failed(let error): error
      }
    }

    private func send(_ bytes: [UInt8]) async throws {
      let call = try state.withLock { state -> Result<BytesCall, GRPCCore.RPCError> in
        switch state {
        case .awaited: .failure(misuse("a message was written before the metadata"))
        case .open(let call): .success(call)
        case .halfClosed: .failure(misuse("a message was written after the end of the request"))
        case .failed(let error): .failure(error)
        }
      }.get()
      do { try await call.send(bytes) } catch { throw failure ?? GRPCCore.RPCError(error) }
    }

    private func misuse(_ message: String) -> GRPCCore.RPCError {
      GRPCCore.RPCError(code: .failedPrecondition, message: message)
    }

    // ---- The end ----

    /// Ends the stream with an error, unless its call has ended.
    func fail(_ error: GRPCCore.RPCError) {
      let call = state.withLock { state -> BytesCall? in
        switch state {
        case .open(let call), .halfClosed(let call):
          if call.hasEnded { return nil }
          state = .failed(error)
          return call
        case .awaited, .failed: return nil
        }
      }
      if let call { return call.cancel(error.message) }
      failIfNotBegun(error)
    }

    private func failIfNotBegun(_ error: GRPCCore.RPCError) {
      let readers = state.withLock { state -> [CheckedContinuation<Void, Never>] in
        guard case .awaited(let readers) = state else { return [] }
        state = .failed(error)
        return readers
      }
      for reader in readers { reader.resume() }
    }

    /// The error with which the stream ended; nil: it did not end by one.
    var failure: GRPCCore.RPCError? {
      state.withLock { state in
        guard case .failed(let error) = state else { return nil }
        return error
      }
    }

    // ---- Readers ----

    /// The call, as soon as it has begun.
    func call() async throws -> BytesCall {
      await withTaskCancellationHandler {
        await withCheckedContinuation { reader in
          let waits = state.withLock { state in
            guard case .awaited(let readers) = state else { return false }
            state = .awaited(readers + [reader])
            return true
          }
          if !waits { reader.resume() }
        }
      } onCancel: {
        fail(GRPCCore.RPCError(code: .cancelled, message: "the task was cancelled"))
      }
      return try state.withLock { state -> Result<BytesCall, GRPCCore.RPCError> in
        switch state {
        case .open(let call), .halfClosed(let call): .success(call)
        case .failed(let error): .failure(error)
        case .awaited: .failure(misuse("the stream has no call"))
        }
      }.get()
    }
  }
#endif
