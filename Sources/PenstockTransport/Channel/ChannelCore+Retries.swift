import PenstockCall
import PenstockChannel
import PenstockLoop
import PenstockWire

// The retry policies of the channel's service config, as attempts ask for them.

extension ChannelCore {
  /// Takes over the retry policies of the present service config.
  func takeRetries() {
    let service = destination.service
    guard destination.retries, service.methods.haveRetries else {
      hasRetries = false
      throttle = nil
      return
    }
    hasRetries = true
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
    guard status.canRepeat == .no, policy(of: request)?.codes.contains(status.code) == true else { return }
    throttle?.failed()
    if !isAnswered, closedBecause == nil { status.canRepeat = .byPolicy }
  }

  func waitToRetry(_ request: Request, after status: Status, _ count: inout RetryCount) -> UInt64? {
    guard hasRetries, closedBecause == nil, throttle?.allowsRetries != false else { return nil }
    return policy(of: request)?.wait(
      after: status.code, status.pushback, &count, random: runtime.platform.random())
  }

  private func policy(of request: Request) -> MethodRetry? {
    destination.service.methods.find(request.pathView)?.retry
  }
}
