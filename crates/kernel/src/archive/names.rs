//! Names of files in an archive: which are refused, which are left out, and when two are the same.
use unicode_normalization::UnicodeNormalization as _;

const LONGEST: usize = 512;
const DEEPEST: usize = 32;

/// The path of an entry from the root of the archive, without `./` and a trailing slash; empty for the root itself. The
/// error says what is wrong with the name.
pub fn check(name: &[u8]) -> Result<String, &'static str> {
    if name.len() > LONGEST {
        return Err("The name is longer than 512 bytes.");
    }
    let name = std::str::from_utf8(name).map_err(|_| "The name is not UTF-8.")?;
    if name.contains('\0') {
        return Err("The name has a NUL character.");
    }
    if name.chars().any(char::is_control) {
        return Err("The name has a control character.");
    }
    if name.contains('\\') {
        return Err("The name has a backslash.");
    }
    if name.starts_with('/') || has_drive(name) {
        return Err("The name is absolute.");
    }
    let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return Err("The name leads out of the archive (..).");
    }
    if parts.len() > DEEPEST {
        return Err("The name is more than 32 folders deep.");
    }
    Ok(parts.join("/"))
}

fn has_drive(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic()) && letters.next() == Some(':')
}

/// The same for two names that some file system or browser would take for one: they differ by case or by Unicode form.
pub fn folded(path: &str) -> String {
    if path.is_ascii() {
        path.to_ascii_lowercase()
    } else {
        path.nfkc().flat_map(char::to_lowercase).nfkc().collect()
    }
}

/// Dotfiles (`.env`, `.git/config`) are never served. `.well-known/` at the root is meant to be.
pub fn is_hidden(path: &str) -> bool {
    let rest = path.strip_prefix(".well-known/").unwrap_or(path);
    rest.split('/').any(|part| part.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w01_names_that_lead_elsewhere_are_refused() {
        let (long, deep) = ("a".repeat(600), "a/".repeat(40));
        for bad in [
            "../x",
            "a/../../x",
            "a/..",
            "/etc/x",
            "C:\\x",
            "c:x",
            "a\\..\\x",
            "a\0b",
            "a\nb",
            "a\u{7f}b",
            "a\u{85}b",
            &long,
            &deep,
        ] {
            assert!(check(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(check(b"a\xff").is_err());
        for (name, path) in [("./", ""), ("./a/b.html", "a/b.html"), ("a//b/", "a/b"), ("b\u{fc}cher", "b\u{fc}cher")]
        {
            assert_eq!(check(name.as_bytes()).as_deref(), Ok(path));
        }
    }

    #[test]
    fn two_forms_of_a_name_are_one() {
        for (a, b) in
            [("Index.HTML", "index.html"), ("b\u{fc}cher", "bu\u{308}cher"), ("\u{ff41}", "a"), ("\u{c4}", "\u{e4}")]
        {
            assert_eq!(folded(a), folded(b));
        }
        assert_ne!(folded("a/b"), folded("ab"));
    }

    #[test]
    fn w06_dotfiles_are_hidden_and_well_known_is_not() {
        for hidden in [".env", ".git/config", "a/.htpasswd", ".well-known/.secret", "a/.well-known/x", "._index.html"]
        {
            assert!(is_hidden(hidden), "{hidden}");
        }
        for shown in ["index.html", ".well-known/security.txt", "a.b/c"] {
            assert!(!is_hidden(shown), "{shown}");
        }
    }
}
