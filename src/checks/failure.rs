//! The reason of a failure, from the errors of the kernel, of rustls and of hyper.

use std::error::Error;
use std::io::{self, ErrorKind};

use kube_canary_model::check::CheckFailure;
use kube_canary_model::send_error::SendError;
use rustls::CertificateError;

use crate::http::client::GetError;

/// Returns the reason of an error of the kernel, or of TLS, which is inside of one.
pub fn failure_of_io(error: &io::Error) -> CheckFailure {
    if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
        return failure_of_tls(error);
    }
    match error.kind() {
        ErrorKind::ConnectionRefused => CheckFailure::Refused,
        ErrorKind::TimedOut => CheckFailure::Timeout,
        ErrorKind::InvalidData => CheckFailure::Malformed,
        ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe
        | ErrorKind::NotConnected
        | ErrorKind::UnexpectedEof => CheckFailure::Closed,
        _ => match SendError::from(error) {
            // Without an address of the family, or without the family, there is no route either.
            SendError::NoRoute | SendError::Address => CheckFailure::NoRoute,
            SendError::Other => CheckFailure::Other,
            _ => CheckFailure::NotSent,
        },
    }
}

/// Returns the reason of an error of TLS.
pub fn failure_of_tls(error: &rustls::Error) -> CheckFailure {
    match error {
        rustls::Error::InvalidCertificate(error) => failure_of_certificate(error),
        rustls::Error::InvalidMessage(_) => CheckFailure::Malformed,
        _ => CheckFailure::Tls,
    }
}

/// Returns why a certificate is not accepted.
pub const fn failure_of_certificate(error: &CertificateError) -> CheckFailure {
    match error {
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => CheckFailure::CertificateExpired,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            CheckFailure::CertificateName
        }
        CertificateError::BadEncoding => CheckFailure::Malformed,
        _ => CheckFailure::CertificateUntrusted,
    }
}

/// Returns why there is no answer by HTTP.
pub fn failure_of_http(error: &hyper::Error) -> CheckFailure {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(error) = cause.downcast_ref() {
            return failure_of_io(error);
        }
        source = cause.source();
    }
    let is_closed = error.is_incomplete_message() || error.is_closed() || error.is_canceled();
    if is_closed { CheckFailure::Closed } else { CheckFailure::Malformed }
}

/// Returns why there is no body.
pub fn failure_of_body(error: &GetError) -> CheckFailure {
    match error {
        GetError::Wire(error) => failure_of_http(error),
        _ => CheckFailure::Malformed,
    }
}
