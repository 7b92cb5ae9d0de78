//! Reading delivery reports (RFC 3464) and complaints (ARF, RFC 5965).
use mail_parser::{MessageParser, MimeHeaders as _};

use crate::queue::{Report, ReportKind, is_hard};

const LONGEST: usize = 300;

/// What a mail to a return path reports; nothing for what is neither a report nor a complaint, as an answer of a holiday.
pub fn read(raw: &[u8]) -> Option<Report> {
    let mail = MessageParser::new().parse(raw)?;
    for part in &mail.parts {
        let Some(kind) = part.content_type() else { continue };
        if !kind.ctype().eq_ignore_ascii_case("message") {
            continue;
        }
        let text = String::from_utf8_lossy(part.contents());
        match kind.subtype().map(str::to_ascii_lowercase).as_deref() {
            Some("delivery-status" | "global-delivery-status") => return delivery(&text),
            Some("feedback-report") => return complaint(&text),
            _ => {}
        }
    }
    None
}

/// The last value of a field: reports about one mail have one group for it, after the one about themselves.
fn field(text: &str, name: &str) -> Option<String> {
    let unfolded = text.replace("\r\n", "\n").replace("\n ", " ").replace("\n\t", " ");
    let values = unfolded.lines().filter_map(|line| line.split_once(':'));
    let mut found =
        values.filter(|(field, _)| field.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim());
    found.next_back().map(str::to_owned)
}

fn delivery(text: &str) -> Option<Report> {
    let action = field(text, "Action")?.to_ascii_lowercase();
    let status = field(text, "Status").unwrap_or_default();
    let diagnostic = field(text, "Diagnostic-Code").unwrap_or_default();
    let said = diagnostic.split_once(';').map_or(diagnostic.as_str(), |(_, said)| said).trim();
    let detail: String = format!("{status} {said}").chars().filter(|c| !c.is_control()).take(LONGEST).collect();
    let detail = detail.trim().to_owned();
    let kind = match action.as_str() {
        "failed" if is_hard(&detail) => ReportKind::Hard,
        "failed" | "delayed" => ReportKind::Soft,
        "delivered" => ReportKind::Delivered,
        _ => return None,
    };
    Some(Report { kind, detail })
}

fn complaint(text: &str) -> Option<Report> {
    let kind = field(text, "Feedback-Type")?.to_ascii_lowercase();
    let is_complaint = matches!(kind.as_str(), "abuse" | "fraud" | "virus" | "other");
    is_complaint.then(|| Report { kind: ReportKind::Complaint, detail: format!("reported as {kind}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(action: &str, status: &str) -> String {
        format!(
            "From: MAILER-DAEMON@mx.example\r\nSubject: Undelivered\r\nMIME-Version: 1.0\r\n\
             Content-Type: multipart/report; report-type=delivery-status; boundary=\"b\"\r\n\r\n--b\r\n\
             Content-Type: text/plain\r\n\r\nI am sorry.\r\n--b\r\nContent-Type: message/delivery-status\r\n\r\n\
             Reporting-MTA: dns; mx.example\r\n\r\nFinal-Recipient: rfc822; a@example.com\r\nAction: {action}\r\n\
             Status: {status}\r\nDiagnostic-Code: smtp; 550 {status} no such\r\n  user here\r\n--b--\r\n"
        )
    }

    #[test]
    fn reports_and_complaints_are_read_and_nothing_else() {
        let hard = read(report("failed", "5.1.1").as_bytes()).unwrap();
        assert_eq!(hard, Report { kind: ReportKind::Hard, detail: "5.1.1 550 5.1.1 no such  user here".into() });
        assert_eq!(read(report("failed", "5.2.2").as_bytes()).unwrap().kind, ReportKind::Soft);
        assert_eq!(read(report("delayed", "4.4.1").as_bytes()).unwrap().kind, ReportKind::Soft);
        let arf = "MIME-Version: 1.0\r\nContent-Type: multipart/report; report-type=feedback-report; boundary=b\r\n\r\n\
                   --b\r\nContent-Type: text/plain\r\n\r\nspam\r\n--b\r\nContent-Type: message/feedback-report\r\n\r\n\
                   Feedback-Type: abuse\r\nUser-Agent: x\r\n\r\n--b--\r\n";
        assert_eq!(read(arf.as_bytes()).unwrap().kind, ReportKind::Complaint);
        assert!(read(b"Subject: I am away\r\n\r\nuntil Monday").is_none());
    }
}
