//! The parsers that meet strangers, each held to what it promises, whatever the input.
//!
//! A target gives some bytes to a parser of the program and checks more than that nothing panics: what is accepted can be written
//! down and read again, no path leaves its folder, sizes have bounds, two readers agree. A broken promise is a panic. The
//! answer says whether the parser accepted the input.
//!
//! `tests/targets.rs` replays `corpus/` and mutates it, with every run of the tests. `cargo/` runs the same functions under
//! libFuzzer, which sees which branches an input reaches.
#![expect(clippy::expect_used, reason = "a broken promise is a panic: that is how a fuzzer learns of it")]
pub mod mutate;
mod targets;

pub use targets::{
    archives::{site_archive, skill_archive},
    headers::{range, traceparent},
    mail::delivery_report,
    plans::plans_file,
    processor::processor_object,
    rules::{header_rules, redirect_rules},
    scim::{scim_filter, scim_patch},
    signatures::signature_header,
    skill::skill_file,
    wallets::{sign_in_text, wallet},
};

/// A function that gives an input to a parser; it answers whether the parser accepted it.
pub type Target = fn(&[u8]) -> bool;

/// A target with its name, which is that of its folder in `corpus/`, and words that its inputs are made of.
pub struct Listed {
    pub name: &'static str,
    pub target: Target,
    pub words: &'static [&'static str],
}

/// What stands between the parts of an input that has several.
pub const BETWEEN: &str = "\n====\n";

/// The parts of an input. Those that are not there are empty.
fn parts<const N: usize>(data: &[u8]) -> [&[u8]; N] {
    let mut found = [&data[..0]; N];
    let mut rest = data;
    for (at, part) in found.iter_mut().enumerate() {
        let end = rest.windows(BETWEEN.len()).position(|window| window == BETWEEN.as_bytes()).filter(|_| at + 1 < N);
        match end {
            Some(end) => {
                *part = &rest[..end];
                rest = &rest[end + BETWEEN.len()..];
            }
            None => {
                *part = rest;
                rest = &data[..0];
            }
        }
    }
    found
}

/// The same, where every part is a text.
fn texts<const N: usize>(data: &[u8]) -> Option<[&str; N]> {
    let mut found = [""; N];
    for (text, part) in found.iter_mut().zip(parts::<N>(data)) {
        *text = std::str::from_utf8(part).ok()?;
    }
    Some(found)
}

/// Every target.
pub const TARGETS: &[Listed] = &[
    Listed {
        name: "site_archive",
        target: site_archive,
        words: &[
            "../",
            "/",
            "index.html",
            "_redirects",
            "_headers",
            ".env",
            "ustar",
            "\0",
            "0000777",
            "./././@LongLink",
            "13 path=a\n",
        ],
    },
    Listed {
        name: "skill_archive",
        target: skill_archive,
        words: &["SKILL.md", "../", "name: ", "---\n", "\0", "00000000001", "17 path=SKILL.md\n", "10 size=1\n"],
    },
    Listed {
        name: "skill_file",
        target: skill_file,
        words: &[
            "---\n",
            "name: a\n",
            "description: b\n",
            "metadata:\n",
            "  tags: a, b\n",
            "|\n",
            "? ",
            "&a ",
            "*a",
            "!!str ",
            "\"",
            "'",
            "~",
            "\u{85}",
            "\u{2028}",
            "\r",
        ],
    },
    Listed {
        name: "scim_filter",
        target: scim_filter,
        words: &[
            " and ",
            " or ",
            "not (",
            ")",
            "(",
            "[",
            "]",
            " eq ",
            " pr",
            " co ",
            "\"a\"",
            "true",
            "1e9",
            "-0",
            "emails",
            "userName",
            "meta.created",
            "urn:ietf:params:scim:schemas:core:2.0:User:",
        ],
    },
    Listed {
        name: "scim_patch",
        target: scim_patch,
        words: &[
            "\"op\":\"add\"",
            "\"replace\"",
            "\"remove\"",
            "\"path\":",
            "emails[type eq \\\"work\\\"].value",
            "members",
            "null",
            "[]",
            "{}",
            "\"id\"",
            "\"active\":\"False\"",
            "schemas",
        ],
    },
    Listed {
        name: "redirect_rules",
        target: redirect_rules,
        words: &[
            "/*",
            "/:a",
            ":splat",
            " 301",
            " 200!",
            " 404",
            "https://",
            "//",
            "\\",
            "example.com",
            ":8080",
            "?",
            "#",
            "%2f",
            "..",
            "\u{e4}",
            BETWEEN,
        ],
    },
    Listed {
        name: "header_rules",
        target: header_rules,
        words: &[
            "/*\n",
            "  ",
            "Content-Type: ",
            "text/html",
            "text/plain",
            ",",
            ";",
            "\"",
            "\t",
            "Set-Cookie: a",
            "Link: x",
            BETWEEN,
        ],
    },
    Listed {
        name: "signature_header",
        target: signature_header,
        words: &["t=", "v1=", "v0=", ",", "GOOD", "NOW", " ", "sha256=", "-1", "18446744073709551615", BETWEEN],
    },
    Listed {
        name: "wallet",
        target: wallet,
        words: &[
            "0x",
            "0X",
            "eip155:1:",
            "solana:",
            "5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp:",
            "1111",
            "OWN",
            "SIGNED",
            "TWIN",
            BETWEEN,
        ],
    },
    Listed {
        name: "sign_in_text",
        target: sign_in_text,
        words: &[
            "https://",
            "http://localhost:1",
            "\n",
            "\r",
            "\u{2028}",
            "\nNonce: 1",
            "- ",
            "Resources:",
            " ",
            "%0a",
            "\\",
            "@",
            BETWEEN,
        ],
    },
    Listed {
        name: "delivery_report",
        target: delivery_report,
        words: &[
            "Content-Type: ",
            "message/delivery-status",
            "message/feedback-report",
            "multipart/report; boundary=b",
            "--b\r\n",
            "\r\n\r\n",
            "Action: failed",
            "Status: 5.1.1",
            "Feedback-Type: abuse",
            "base64",
            "message/rfc822",
        ],
    },
    Listed {
        name: "plans_file",
        target: plans_file,
        words: &[
            "[plans.a]\n",
            "[meters.a]\n",
            "limits",
            "included",
            " = ",
            "\"1 GiB\"",
            "9223372036854775807",
            "\"0.000000000001\"",
            "[[costs]]\n",
            "overage",
            "cap",
            "hard = true\n",
            "\"99999999999d\"",
            "{ ",
            " }",
        ],
    },
    Listed {
        name: "processor_object",
        target: processor_object,
        words: &[
            "9223372036854775807",
            "-9223372036854775808",
            "1e300",
            "null",
            "\"id\":",
            "\"created\":",
            "\"items\":{\"data\":[",
            "\"period_start\":",
        ],
    },
    Listed {
        name: "traceparent",
        target: traceparent,
        words: &["00-", "ff-", "cc-", "-01", "-00", "0000000000000000", "-more"],
    },
    Listed {
        name: "range",
        target: range,
        words: &["bytes=", "-", ",", "+", " ", "0", "18446744073709551615", "bytes=-1", BETWEEN],
    },
];

/// The target of a name; for programs that are given one.
pub fn find(name: &str) -> &'static Listed {
    TARGETS.iter().find(|listed| listed.name == name).expect("a target of this name")
}
