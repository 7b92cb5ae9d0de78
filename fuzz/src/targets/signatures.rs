//! Headers that sign a body: those of our webhooks, of the payment processor and of the code host.
use aws_lc_rs::hmac;
use axum::http::{HeaderMap, HeaderValue};
use commerce::payments::signature;
use data_encoding::HEXLOWER;
use kernel::{clock::Timestamp, crypto::Secret};

use crate::parts;

const SECRET: &str = "whsec_of_the_fuzzer";
const NOW: i64 = 1_769_853_600;

fn mac(text: &[u8]) -> String {
    HEXLOWER.encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), text).as_ref())
}

/// A header and a body. In the header, `NOW` stands for the time and `GOOD` for the signature at that time. Only a header that
/// has the right signature counts; what the processor's reader accepts, the reader of our webhooks accepts too.
pub fn signature_header(data: &[u8]) -> bool {
    let [header, body] = parts(data);
    let header = String::from_utf8_lossy(header);
    let good = mac(&[NOW.to_string().as_bytes(), b".", body].concat());
    let header = header.replace("NOW", &NOW.to_string()).replace("GOOD", &good);
    let now = Timestamp(NOW * 1000);
    let seconds = u64::try_from(NOW).unwrap_or_default();

    let ours = janua_client::verify_webhook(&header, body, SECRET, seconds).is_ok();
    if ours {
        let time =
            header.split(',').filter_map(|part| part.trim().strip_prefix("t=")).next_back().unwrap_or_default();
        let near: i64 = time.parse().expect("a time");
        assert!((near - NOW).abs() <= 300, "{header}");
        let right = mac(&[time.as_bytes(), b".", body].concat());
        assert!(header.to_ascii_lowercase().contains(&right), "{header}: accepted without its signature");
    }

    let mut headers = HeaderMap::new();
    let mut processors = false;
    if let Ok(value) = HeaderValue::from_str(&header) {
        headers.insert("stripe-signature", value);
        let secrets = [Secret::from("another".to_owned()), Secret::from(SECRET.to_owned())];
        processors = signature::verify(&headers, body, &secrets, now).is_ok();
        assert!(ours || !processors, "{header}: two readers of one format disagree");
        assert!(
            signature::verify(&headers, body, &secrets[..1], now).is_err(),
            "{header}: signed with no secret of ours"
        );
        let more = [body, b" "].concat();
        assert!(signature::verify(&headers, &more, &secrets, now).is_err(), "{header}: another body");
    }
    let own = signature::sign(&Secret::from(SECRET.to_owned()), now, body);
    assert_eq!(janua_client::verify_webhook(&own, body, SECRET, seconds), Ok(()), "what one signs the other accepts");

    let hosts = hosting::codehost::is_signed(Some(&header), SECRET, body);
    assert_eq!(hosts, header == format!("sha256={}", mac(body)), "{header}: one spelling, and no other");
    assert!(hosting::codehost::is_signed(Some(&format!("sha256={}", mac(body))), SECRET, body));
    ours || processors || hosts
}
