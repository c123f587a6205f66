import PenstockCall
import PenstockChannel
import PenstockLoop
import PenstockWire

// The retry policies of the channel's service config, as attempts ask for them.

extension ChannelCore {
  /// Takes over the retry policies and the throttle of the present service config.
  func takeRetries() {
    let service = destination.service
    hasRetries = destination.retries && service.methods.haveRetries
    notesEnds = hasRetries || service.retryThrottle != nil
    guard let settings = service.retryThrottle else {
      throttle = nil
      return
    }
    if throttle == nil { throttle = RetryThrottle(settings) } else { throttle?.become(settings) }
  }

  /// Notes that an attempt of `request` has ended with `status`. `isAnswered`: the response has begun before its status,
  /// so that the request can't be sent again. An attempt whose request the server has certainly not processed is not
  /// counted: the request is sent again without the policy.
  func noteEnd(_ request: Request, _ status: Status, isAnswered: Bool) {
    if status.code == .ok {
      throttle?.succeeded()
      return
    }
    guard status.canRepeat == .no, status.mayRetry else { return }
    let isListed = policy(of: request)?.codes.contains(status.code) == true
    if isListed || request.hedgedCodes.contains(status.code) || status.pushback == .never {
      throttle?.failed()
    }
    if isListed, !isAnswered, closedBecause == nil { status.canRepeat = .byPolicy }
  }

  func waitToRetry(_ call: Call, after status: Status, _ count: inout RetryCount) -> UInt64? {
    guard closedBecause == nil, let policy = policy(of: call.request), policy.codes.contains(status.code)
    else {
      // The request has been repeated often enough, and counts now as any other that has failed.
      if status.canRepeat != .byPolicy, call.request.hedgedCodes.contains(status.code) { throttle?.failed() }
      return nil
    }
    // The server has not processed the request, but the policy has to decide, because it has been repeated often enough.
    if status.canRepeat != .byPolicy { throttle?.failed() }
    var further = count
    let random = runtime.platform.random()
    guard let wait = policy.wait(after: status.code, status.pushback, &further, random: random) else {
      return nil
    }
    guard throttle?.allowsRetries != false else {
      counts.throttled &+= 1
      noteRetry(of: call, after: status, in: nil)
      return nil
    }
    count = further
    counts.retries &+= 1
    noteRetry(of: call, after: status, in: wait)
    return wait
  }

  /// Whether the throttle lets a hedged call be sent once more. `status`: that of its last attempt that has failed.
  func allowsHedge(of call: Call, after status: Status?) -> Bool {
    guard throttle?.allowsRetries == false else { return true }
    counts.throttled &+= 1
    noteRetry(of: call, after: status, in: nil)
    return false
  }

  private func policy(of request: Request) -> MethodRetry? {
    hasRetries ? destination.service.methods.find(request.pathView)?.retry : nil
  }
}
