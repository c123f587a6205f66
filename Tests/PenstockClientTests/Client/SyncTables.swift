/// The expectations of SyncTableTests: for each state, the cells of the tables, each with the events that it stands for.
enum SyncTables {
  static let unary = """
    short:
      fail -> passing | start
      x | request; request, closing; halfClose; headers; message; status; next; again; again, refused; \
    answer; answer, headers; answer, message; answer, bare; end; letGo; left; delivered
      -> over | gone
      - | demand
    fresh:
      hold -> collecting 900 | start
      x | request; request, closing; halfClose; headers; message; status; next; again; again, refused; \
    answer; answer, headers; answer, message; answer, bare; end; letGo; left; delivered
      -> over | gone
      - | demand
    collecting 100:
      x | start; headers; message; status; next; again; again, refused; answer; answer, headers; answer, \
    message; answer, bare; end; letGo; left; delivered
      offer -> offered 190 | request; halfClose
      hold -> closing 190 | request, closing
      -> over | gone
      - | demand
    closing 120:
      x | start; headers; message; status; next; again; again, refused; answer; answer, headers; answer, \
    message; answer, bare; end; letGo; left; delivered
      pass | request; request, closing
      offer -> offered 129 | halfClose
      -> over | gone
      - | demand
    offered 120:
      x | start; headers; message; status; again; again, refused; letGo; left; delivered
      pass | request; request, closing; halfClose
      -> over | gone
      passOn(120) -> passed 000 | next
      take(120, headers, 1, own) -> delivering | answer
      take(120, headers, 0, own) -> delivering | answer, headers
      take(120, 1, own) -> delivering | answer, message
      finish -> passing | answer, bare; end
      - | demand
    offered 123:
      x | start; headers; message; status; again; again, refused; letGo; left; delivered
      pass | request; request, closing; halfClose
      -> over | gone
      passOn(123) -> passed 000 | next
      take(123, headers, 1, own) -> delivering | answer
      take(123, headers, 0, own) -> delivering | answer, headers
      take(123, 1, own) -> delivering | answer, message
      finish -> passing | answer, bare; end
      - | demand
    passed 000:
      x | start; next; again; again, refused; answer; answer, headers; answer, message; answer, bare; end; \
    letGo; left; delivered
      pass | request; request, closing; halfClose
      hold -> passed 900 | headers
      hold -> passed 090 | message
      tell -> responded 009 | status
      -> over | gone
      - | demand
    passed 400:
      x | start; headers; next; again; again, refused; answer; answer, headers; answer, message; answer, \
    bare; end; letGo; left; delivered
      pass | request; request, closing; halfClose
      hold -> passed 490 | message
      tell -> responded 409 | status
      -> over | gone
      - | demand
    passed 050:
      x | start; next; again; again, refused; answer; answer, headers; answer, message; answer, bare; end; \
    letGo; left; delivered
      pass | request; request, closing; halfClose; message
      hold -> passed 950 | headers
      tell -> responded 059 | status
      -> over | gone
      - | demand
    passed 450:
      x | start; headers; next; again; again, refused; answer; answer, headers; answer, message; answer, \
    bare; end; letGo; left; delivered
      pass | request; request, closing; halfClose; message
      tell -> responded 459 | status
      -> over | gone
      - | demand
    responded 456:
      x | start; headers; message; status; next; answer; answer, headers; answer, message; answer, bare; \
    left; delivered
      pass | request; request, closing; halfClose
      -> over | gone
      restart(6) -> passed 000 | again
      tell | again, refused
      finish -> passing | end
      settle(456) -> passing | letGo
      - | demand
    responded 456:
      x | start; headers; message; status; next; answer; answer, headers; answer, message; answer, bare; \
    left; delivered
      pass | request; request, closing; halfClose
      -> over | gone
      restart(6) -> passed 000 | again
      tell | again, refused
      finish -> passing | end
      settle(456) -> passing | letGo
      - | demand
    responded 006:
      x | start; headers; message; status; next; answer; answer, headers; answer, message; answer, bare; \
    left; delivered
      pass | request; request, closing; halfClose
      -> over | gone
      restart(6) -> passed 000 | again
      tell | again, refused
      finish -> passing | end
      settle(006; 1, 6) -> delivering | letGo
      - | demand
    giving 1, own:
      x | start; headers; message; status; next; again; again, refused; answer; answer, headers; answer, \
    message; answer, bare; end; letGo; left; delivered
      pass | request; request, closing; halfClose
      -> over | gone
      deliver(1, own) -> delivering | demand
    delivering:
      x | start; headers; message; status; next; again; again, refused; answer; answer, headers; answer, \
    message; answer, bare; end; letGo
      pass | request; request, closing; halfClose
      -> over | gone
      - | demand
      -> giving 1, own | left
      -> passing | delivered
    passing:
      x | start; next; again; again, refused; answer; answer, headers; answer, message; answer, bare; end; \
    letGo; left; delivered
      pass | request; request, closing; halfClose; headers; message; status
      -> over | gone
      - | demand
    over:
      x | start; request; request, closing; halfClose; headers; message; status
      - | gone; next; again; again, refused; answer; answer, headers; answer, message; answer, bare; end; \
    letGo; demand; left; delivered
    """

  static let bidi = """
    short:
      fail -> passing | start
      x | request; request, closing; halfClose; headers; message; status; next; again; again, refused; \
    answer; answer, headers; answer, message; answer, bare; end; letGo; left; delivered
      -> over | gone
      - | demand
    fresh:
      offer -> offered 900 | start
      x | request; request, closing; halfClose; headers; message; status; next; again; again, refused; \
    answer; answer, headers; answer, message; answer, bare; end; letGo; left; delivered
      -> over | gone
      - | demand
    offered 100:
      x | start; headers; message; status; again; again, refused; letGo; left; delivered
      pass | request; request, closing; halfClose
      -> over | gone
      passOn(100) -> passed 000 | next
      take(100, headers, 1, own) -> delivering | answer
      take(100, headers, 0, own) -> delivering | answer, headers
      take(100, 1, own) -> delivering | answer, message
      finish -> passing | answer, bare; end
      - | demand
    passed 000:
      x | start; next; again; again, refused; answer; answer, headers; answer, message; answer, bare; end; \
    letGo; left; delivered
      pass | request; request, closing; halfClose
      tell -> responded 900 | headers
      tell -> responded 090 | message
      tell -> responded 009 | status
      -> over | gone
      - | demand
    responded 400:
      x | start; next; again; again, refused; answer; answer, headers; answer, message; answer, bare; \
    left; delivered
      pass | request; request, closing; halfClose; headers; message; status
      -> over | gone
      finish -> passing | end
      settle(400) -> passing | letGo
      - | demand
    responded 050:
      x | start; next; again; again, refused; answer; answer, headers; answer, message; answer, bare; \
    left; delivered
      pass | request; request, closing; halfClose; headers; message; status
      -> over | gone
      finish -> passing | end
      settle(050) -> passing | letGo
      - | demand
    responded 006:
      x | start; headers; message; status; next; answer; answer, headers; answer, message; answer, bare; \
    left; delivered
      pass | request; request, closing; halfClose
      -> over | gone
      restart(6) -> passed 000 | again
      tell | again, refused
      finish -> passing | end
      settle(006) -> passing | letGo
      - | demand
    giving 1, own:
      x | start; headers; message; status; next; again; again, refused; answer; answer, headers; answer, \
    message; answer, bare; end; letGo; left; delivered
      pass | request; request, closing; halfClose
      -> over | gone
      deliver(1, own) -> delivering | demand
    delivering:
      x | start; headers; message; status; next; again; again, refused; answer; answer, headers; answer, \
    message; answer, bare; end; letGo
      pass | request; request, closing; halfClose
      -> over | gone
      - | demand
      -> giving 1, own | left
      -> passing | delivered
    passing:
      x | start; next; again; again, refused; answer; answer, headers; answer, message; answer, bare; end; \
    letGo; left; delivered
      pass | request; request, closing; halfClose; headers; message; status
      -> over | gone
      - | demand
    over:
      x | start; request; request, closing; halfClose; headers; message; status
      - | gone; next; again; again, refused; answer; answer, headers; answer, message; answer, bare; end; \
    letGo; demand; left; delivered
    """

  static let function = """
    beforeNext:
      next -> inNext | next
      x | responded; lost
      end -> ended | end
      answer(0) -> ended | answer
      broken(returned without calling next, ending the call or answering it) -> ended | returned
      broken(returned a value that its function may not return) -> ended | returned 77
    beforeNext, replaced, answers:
      next(new message) -> inNext | next
      x | responded; lost
      end -> ended | end
      answer(1) -> ended | answer
      broken(returned without calling next, ending the call or answering it) -> ended | returned
      broken(returned a value that its function may not return) -> ended | returned 77
    beforeNext, message, replaced:
      next(other message) -> inNext | next
      x | responded; lost
      end -> ended | end
      answer(0) -> ended | answer
      broken(returned without calling next, ending the call or answering it) -> ended | returned
      broken(returned a value that its function may not return) -> ended | returned 77
    inNext:
      gives gone | next
      -> afterNext, status | responded
      -> gone | lost
      endElsewhere | end
      refuses hasGoneOn | answer
      x | returned; returned 77
    afterNext:
      refuses streamHasBegun | next
      x | responded; lost
      end -> ended, response | end
      refuses hasGoneOn | answer
      letGo -> ended, response | returned
      broken(returned a value that its function may not return) -> ended, response | returned 77
    afterNext, status:
      again -> inNext | next
      x | responded; lost
      end -> ended, response | end
      refuses hasGoneOn | answer
      letGo -> ended, response | returned
      broken(returned a value that its function may not return) -> ended, response | returned 77
    gone:
      gives gone | next
      x | responded; lost
      end -> ended | end
      refuses hasGoneOn | answer
      -> ended | returned; returned 77
    ended:
      refuses functionHasEnded | next
      x | responded; lost
      gives already | end; answer
      - | returned; returned 77
    ended, response:
      refuses functionHasEnded | next
      x | responded; lost
      gives already | end; answer
      - | returned; returned 77
    """

  static let rights = """
    beforeNext:
      answer yes, start yes, record startNotPassed
      message: yes, noMessage, yes, noMessage
    beforeNext, replaced, answers:
      answer yes, start yes, record startNotPassed
      message: yes, noMessage, yes, noMessage
    beforeNext, message, replaced:
      answer yes, start yes, record startNotPassed
      message: yes, noMessage, yes, noMessage
    inNext:
      answer hasGoneOn, start streamHasBegun, record streamHasBegun
      message: noMessage, noMessage, noMessage, noMessage
    afterNext:
      answer hasGoneOn, start streamHasBegun, record streamHasBegun
      message: yes, yes, noMessage, noMessage
    afterNext, status:
      answer hasGoneOn, start yes, record yes
      message: yes, yes, noMessage, noMessage
    gone:
      answer hasGoneOn, start streamHasBegun, record streamHasBegun
      message: noMessage, noMessage, noMessage, noMessage
    ended:
      answer functionHasEnded, start functionHasEnded, record functionHasEnded
      message: functionHasEnded, functionHasEnded, functionHasEnded, functionHasEnded
    ended, response:
      answer functionHasEnded, start functionHasEnded, record functionHasEnded
      message: functionHasEnded, functionHasEnded, functionHasEnded, functionHasEnded
    """

  static let news = """
    none:
      -> awaited | asked
      x | responded
      -> over, aborted | ended
      -> over | ended without; dropped; givenUp
    awaited:
      x | asked
      wake -> response | responded
      wake -> over, aborted | ended
      wake -> over | ended without; dropped; givenUp
    response:
      -> awaited | asked
      x | responded
      -> over, aborted | ended
      -> over | ended without; dropped
      - | givenUp
    over:
      - | asked; responded; ended without; dropped; givenUp
      -> over, aborted | ended
    over, cancelled:
      - | asked; responded; ended; ended without; dropped; givenUp
    """

  static let offer = """
    early:
      -> ready | offered
      x | queued; begun
      -> closed | withdrawn
    ready:
      x | offered
      -> queued | queued
      forget -> closed | begun; withdrawn
    queued:
      x | offered; queued
      unlink -> closed | begun; withdrawn
    closed:
      x | offered; queued; begun
      - | withdrawn
    """
}
