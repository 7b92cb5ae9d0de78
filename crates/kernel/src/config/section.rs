//! A table of settings beside the code that reads them.
use std::{
    any::{Any, TypeId},
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use super::{Effective, PREFIX, Setting};

/// A group of settings. [`settings!`](crate::settings) defines one from a table.
pub trait Section: Any + Clone + Send + Sync {
    const REFERENCE: &'static [Described];

    /// Reads the section's settings; none if one of them is wrong.
    fn read(given: &mut Given) -> Option<Self>;

    fn defaults() -> Self {
        #[expect(clippy::expect_used, reason = "a wrong default fails the first test that reads it")]
        Self::read(&mut Given::default()).expect("the defaults are right")
    }
}

/// A table of settings: a struct with a field for each, and the [`Section`] that reads it.
#[macro_export]
macro_rules! settings { (
    $(#[doc = $about:literal])+
    pub struct $section:ident $(+ $more:ident: $more_type:ty)? {
        $($(#[doc = $doc:literal])+ $name:ident: $type:ty = $default:literal;)+
    }
) => {
    $(#[doc = $about])+
    #[derive(Debug, Clone)]
    #[allow(clippy::struct_field_names, reason = "a setting has the same name everywhere")]
    pub struct $section { $($(#[doc = $doc])+ pub $name: $type,)+ $(pub $more: $more_type)? }

    impl $crate::config::Section for $section {
        const REFERENCE: &'static [$crate::config::Described] = &[$($crate::config::Described {
            name: stringify!($name), default: $default, about: concat!($($doc, "\n"),+),
        },)+];

        fn read(given: &mut $crate::config::Given) -> Option<Self> {
            // All of them are read before the first that is wrong ends it.
            $(let $name = given.take::<$type>(stringify!($name), $default);)+
            Some(Self { $($name: $name?,)+ $($more: <$more_type>::default())? })
        }
    }
} }

/// The name, default and description of a setting, for `janua config`.
#[derive(Debug)]
pub struct Described {
    pub name: &'static str,
    pub default: &'static str,
    pub about: &'static str,
}

impl Described {
    pub fn variable(&self) -> String {
        variable(self.name)
    }
}

fn variable(setting: &str) -> String {
    format!("{PREFIX}{}", setting.to_uppercase())
}

/// A section, as a `Part` lists it.
#[derive(Clone, Copy)]
pub struct Listed {
    pub reference: &'static [Described],
    pub(super) bare: &'static [&'static str],
    pub(super) read: fn(&mut Given, &mut Sections),
}

impl Listed {
    pub const fn of<T: Section>() -> Self {
        Self { reference: T::REFERENCE, bare: &[], read: |given, sections| sections.put_some(T::read(given)) }
    }

    /// Accepts these environment variables without the prefix, too.
    #[must_use]
    pub const fn bare(self, variables: &'static [&'static str]) -> Self {
        Self { bare: variables, ..self }
    }
}

/// The sections of a program's settings, by type.
#[derive(Clone, Default)]
pub struct Sections {
    by_type: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    /// Whether all sections of the program were read, so that one that is missing is one that no part lists.
    pub(super) are_complete: bool,
}

impl Sections {
    pub(super) fn put<T: Section>(&mut self, section: T) {
        self.by_type.insert(TypeId::of::<T>(), Arc::new(section));
    }

    fn put_some<T: Section>(&mut self, section: Option<T>) {
        if let Some(section) = section {
            self.put(section);
        }
    }

    pub(super) fn get<T: Section>(&self) -> Option<Arc<T>> {
        self.by_type.get(&TypeId::of::<T>()).cloned().and_then(|section| section.downcast().ok())
    }
}

impl fmt::Debug for Sections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sections", self.by_type.len())
    }
}

/// The given values by the setting's name, and the errors found in them.
#[derive(Default)]
pub struct Given {
    texts: BTreeMap<String, (String, Source)>,
    /// The settings that were read, in their order.
    effective: Vec<Effective>,
    wrong: Vec<String>,
}

impl Given {
    pub(super) fn put(&mut self, name: String, text: String, source: Source) {
        self.texts.insert(name, (text, source));
    }

    /// Reads one setting. If it is wrong, notes the error and answers none.
    pub fn take<T: Setting>(&mut self, name: &str, default: &str) -> Option<T> {
        let given = self.texts.remove(name);
        let (text, source) = given.unwrap_or_else(|| (default.to_owned(), Source::Default));
        let read = T::parse(&text);
        self.effective.push(Effective::new(name, &text, source, T::IS_SECRET));
        read.map_err(|reason| self.wrong.push(format!("{}: {reason}", source.name(name)))).ok()
    }

    /// The settings that were read, and all errors, including names that no section has.
    pub(super) fn finish(self, known: &[&Described]) -> (Vec<Effective>, Vec<String>) {
        let unknown = self.texts.iter().map(|(name, (_, source))| unknown(name, *source, known));
        (self.effective, self.wrong.into_iter().chain(unknown).collect())
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    Default,
    File,
    Variable,
    /// A variable without the prefix.
    BareVariable,
    Flag,
}

impl Source {
    /// The setting's name in the form of its source: key, variable or flag.
    pub(super) fn name(self, setting: &str) -> String {
        match self {
            Self::Variable => variable(setting),
            Self::BareVariable => setting.to_uppercase(),
            Self::File => format!("janua.toml: {setting}"),
            Self::Flag => format!("--set {setting}"),
            Self::Default => setting.to_owned(),
        }
    }
}

fn unknown(name: &str, source: Source, known: &[&Described]) -> String {
    let nearest = known
        .iter()
        .map(|row| row.name)
        .max_by(|a, b| strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name)));
    let hint = nearest.filter(|near| strsim::jaro_winkler(near, name) > 0.8).map_or_else(
        || "; `janua config` lists them all".into(),
        |near| format!("; did you mean {}?", source.name(near)),
    );
    format!("{}: there is no such setting{hint}", source.name(name))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::config::Config;

    crate::settings! {
        /// Of a feature.
        pub struct Lights {
            /// How many.
            lamps: u32 = "3";
            /// How bright.
            lamp_watts: NonZeroUsize = "40";
            /// Where.
            lamp_room: String = "hall";
        }
    }

    const SECTIONS: &[Listed] = &[Listed::of::<Lights>().bare(&["LAMP_ROOM"])];

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn a_feature_has_settings_of_its_own() {
        let variables = [pair("JANUA_LAMPS", "5"), pair("LAMP_ROOM", "attic")];
        let config = Config::load(None, variables, [], SECTIONS).unwrap();
        let lamp = config.of::<Lights>();
        assert_eq!((lamp.lamps, lamp.lamp_watts.get(), lamp.lamp_room.as_str()), (5, 40, "attic"));
        assert_eq!(Config::for_tests().of::<Lights>().lamps, 3);
        assert_eq!(Config::for_tests().with(|lamp: &mut Lights| lamp.lamps = 7).of::<Lights>().lamps, 7);
        assert!(Config::reference(SECTIONS).iter().any(|row| row.name == "lamp_room"));
    }

    #[test]
    fn what_is_wrong_in_all_sections_is_said_at_once() {
        let flags = [pair("lamps", "many"), pair("lamp_watts", "0"), pair("workers", "x"), pair("lamp_rom", "x")];
        let said = Config::load(None, [], flags, SECTIONS).unwrap_err().to_string();
        for part in [
            "--set lamps: must be a whole number",
            "--set lamp_watts: must be at least 1",
            "--set workers: must be a whole number",
            "--set lamp_rom: there is no such setting; did you mean --set lamp_room?",
        ] {
            assert!(said.contains(part), "{part}\nis not in\n{said}");
        }
        let unlisted = Config::load(None, [], [pair("lamps", "1")], &[]).unwrap_err().to_string();
        assert!(unlisted.contains("lamps: there is no such setting"), "{unlisted}");
    }
}
