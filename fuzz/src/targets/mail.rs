//! Mails to a return path: delivery reports and complaints.
use email::{ReportKind, dsn};

/// A report is short, has no control characters, and is the same with other line ends.
pub fn delivery_report(data: &[u8]) -> bool {
    let Some(report) = dsn::read(data) else { return false };
    assert!(report.detail.chars().count() <= 300, "{}", report.detail);
    assert!(!report.detail.chars().any(char::is_control), "{:?}", report.detail);
    // Written as a report of our own, it means the same.
    let action = match report.kind {
        ReportKind::Delivered => "delivered",
        ReportKind::Soft => "delayed",
        ReportKind::Hard => "failed",
        ReportKind::Complaint | ReportKind::Unsubscribed => return true,
    };
    let (status, said) = report.detail.split_once(' ').unwrap_or((&report.detail, ""));
    let written = format!(
        "Content-Type: multipart/report; boundary=\"own\"\r\n\r\n--own\r\nContent-Type: message/delivery-status\r\n\r\n\
         Reporting-MTA: dns; mx.example\r\n\r\nAction: {action}\r\nStatus: {status}\r\nDiagnostic-Code: smtp; {said}\r\n\
         \r\n--own--\r\n"
    );
    let again = dsn::read(written.as_bytes()).expect("a report");
    assert_eq!(again.kind, report.kind, "{written}");
    true
}
