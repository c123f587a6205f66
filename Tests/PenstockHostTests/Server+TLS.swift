import Penstock
import PenstockTestCertificates

extension Server {
  /// A server with TLS whose certificate is for localhost.
  static func withTLS() throws -> Server {
    let folder = Certificates.shared.directory
    return try Server(["--tls", "--cert", "\(folder)/server.pem", "--key", "\(folder)/server.key"])
  }
  /// The certificates that a channel to that server trusts.
  static var certificates: TLSOptions.Certificates {
    var certificates = TLSOptions.Certificates()
    certificates.rootsFile = "\(Certificates.shared.directory)/root.pem"
    return certificates
  }
}
