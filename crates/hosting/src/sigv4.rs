//! Signing requests to Amazon's services (Signature Version 4), for bodies that are sent whole; and what their XML has in common.
use aws_lc_rs::{digest, hmac};
use data_encoding::HEXLOWER;
use jiff::tz::TimeZone;
use kernel::clock::Timestamp;
use url::Url;

pub struct Signing<'a> {
    pub access_key: &'a str,
    pub secret_key: &'a str,
    pub region: &'a str,
    pub service: &'a str,
}

/// The headers that a signature adds.
pub struct Signed {
    pub date: String,
    pub authorization: String,
}

impl Signing<'_> {
    /// For a path without a query. `headers` are those that are signed beside the date, in lower case; `host` is one of them.
    pub fn sign(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8], now: Timestamp) -> Signed {
        let moment = jiff::Timestamp::from_millisecond(now.0).unwrap_or_default().to_zoned(TimeZone::UTC);
        let date = moment.strftime("%Y%m%dT%H%M%SZ").to_string();
        let day = &date[..8];
        let mut all: Vec<(&str, &str)> = headers.iter().copied().chain([("x-amz-date", date.as_str())]).collect();
        all.sort_unstable();
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let lines: Vec<String> = all.iter().map(|(name, value)| format!("{name}:{}", value.trim())).collect();
        let lines = lines.join("\n");
        let canonical = format!("{method}\n{path}\n\n{lines}\n\n{names}\n{}", hex(body));
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(canonical.as_bytes()));
        let mut key = format!("AWS4{}", self.secret_key).into_bytes();
        for part in [day, self.region, self.service, "aws4_request", &text] {
            key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes()).as_ref().to_vec();
        }
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={}",
            self.access_key,
            HEXLOWER.encode(&key)
        );
        Signed { date, authorization }
    }
}

/// The host of a URL as requests name it.
pub fn host_of(url: &Url) -> String {
    match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (host, _) => host.unwrap_or_default().to_owned(),
    }
}

/// The text of the first element of a name.
pub fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = xml.split_once(&format!("<{name}>"))?;
    after.split_once(&format!("</{name}>")).map(|(text, _)| text)
}

pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// IDs of Amazon's are letters and digits; nothing else gets into a path.
pub fn plain(id: &str) -> String {
    id.chars().filter(char::is_ascii_alphanumeric).collect()
}

fn hex(data: &[u8]) -> String {
    HEXLOWER.encode(digest::digest(&digest::SHA256, data).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `get-vanilla` and `post-vanilla` of Amazon's published test suite.
    #[test]
    fn signatures_are_those_of_the_published_test_suite() {
        let signing = Signing {
            access_key: "AKIDEXAMPLE",
            secret_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
            region: "us-east-1",
            service: "service",
        };
        let moment = Timestamp(1_440_938_160_000);
        for (method, signature) in [
            ("GET", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
            ("POST", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        ] {
            let signed = signing.sign(method, "/", &[("host", "example.amazonaws.com")], b"", moment);
            assert_eq!(signed.date, "20150830T123600Z");
            let expected = format!(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
                 SignedHeaders=host;x-amz-date, Signature={signature}"
            );
            assert_eq!(signed.authorization, expected, "{method}");
        }
    }

    #[test]
    fn requests_with_a_path_are_signed_as_botocore_signs_them() {
        // Made with botocore 1.44: SigV4Auth(credentials, "cloudfront", "us-east-1") over the same request and time.
        let signing = Signing {
            access_key: "AKIDEXAMPLE",
            secret_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
            region: "us-east-1",
            service: "cloudfront",
        };
        let headers = [("content-type", "text/xml"), ("host", "cloudfront.amazonaws.com")];
        let path = "/2020-05-31/distribution/E1/invalidation";
        let signed = signing.sign("POST", path, &headers, b"<a/>", Timestamp(1_440_938_160_000));
        assert_eq!(
            signed.authorization,
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/cloudfront/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date, \
             Signature=711e95cee5786c80535e31c8293c1f4e90c4b91e7509afa64ee2612f973086a4"
        );
    }

    #[test]
    fn what_goes_into_xml_and_paths_stays_text() {
        assert_eq!((escape("a<b>&"), plain("E1/../x")), ("a&lt;b&gt;&amp;".into(), "E1x".into()));
        assert_eq!((element("<a><Id>E1</Id></a>", "Id"), element("<a>", "Id")), (Some("E1"), None));
    }
}
