//! Mail and text messages to people: what is written, how much of it, and its way out.
pub mod budget;
pub(crate) mod letters;
pub mod mail;
pub mod relay;
pub mod sender;
pub mod sms;

/// Makes typed text safe as one word: no second line, no character that hides or turns others around, no URL that
/// mail programs turn into a link.
fn one_line(text: &str) -> String {
    let is_hidden = |c: &char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    let shown = text.chars().filter(|c| !is_hidden(c));
    let plain: String = shown.map(|c| if c.is_control() { ' ' } else { c }).collect();
    plain.replace("://", ":// ").replace("www.", "www ")
}
