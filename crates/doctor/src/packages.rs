//! Packages of the distribution that bring what is missing here: of Debian's and those of its kin, whose names are known.

use numapilot_trace::engine::Engine;
use serde::Serialize;

use super::Facts;

/// A distribution, as its file `os-release` names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Distribution {
    /// In words: "Debian GNU/Linux 12 (bookworm)".
    pub name: String,
    /// Its identifier, then those of the distributions that it derives from: "debian".
    pub ids: Vec<String>,
    /// Its release: "12". Empty where it has none.
    pub release: String,
}

impl Distribution {
    /// That of this system; without names where it does not say.
    #[must_use]
    pub fn of_this_system() -> Distribution {
        let text =
            ["/etc/os-release", "/usr/lib/os-release"].iter().find_map(|path| std::fs::read_to_string(path).ok());
        Distribution::parse(&text.unwrap_or_default())
    }

    /// Parses the text of an `os-release`.
    #[must_use]
    pub fn parse(text: &str) -> Distribution {
        let value = |name: &str| -> String {
            let stated = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='));
            stated.unwrap_or_default().trim_matches(['"', '\'']).to_owned()
        };
        let ids = format!("{} {}", value("ID"), value("ID_LIKE"));
        Distribution {
            name: value("PRETTY_NAME"),
            ids: ids.split_whitespace().map(str::to_owned).collect(),
            release: value("VERSION_ID"),
        }
    }

    fn has_apt(&self) -> bool {
        self.ids.iter().any(|id| id == "debian" || id == "ubuntu")
    }

    /// Whether its package qemu-user loads plugins that speak our version of their interface (docs/emulate.md): later ones of Debian and its kin do not.
    fn has_qemu_with_plugins(&self) -> bool {
        self.ids.first().is_some_and(|id| id == "debian") && self.release == "12"
    }
}

/// Something that is missing, and the packages that bring it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Provided {
    /// The engine that needs it.
    pub engine: Engine,
    /// What the packages bring, as a noun phrase (`compilers`).
    pub brings: &'static str,
    /// Names of packages.
    pub packages: &'static [&'static str],
}

/// What is missing according to these facts, and comes in packages of this distribution. Nothing of another family than Debian's, whose names are not known.
#[must_use]
pub fn provided(facts: &Facts, distribution: &Distribution) -> Vec<Provided> {
    let mut out = Vec::new();
    if !distribution.has_apt() {
        return out;
    }
    if facts.compilers.is_empty() {
        out.push(Provided { engine: Engine::Instrument, brings: "compilers", packages: &["gcc", "g++"] });
    }
    // Where one is installed and is of no use, the package would bring the same again.
    let has_none = facts.emulator.version.is_none() && facts.emulator.reason == numapilot_emulator::NO_EMULATOR;
    if has_none && distribution.has_qemu_with_plugins() {
        out.push(Provided { engine: Engine::Emulate, brings: "an emulator", packages: &["qemu-user"] });
    }
    out
}

/// The command that installs them, which root has to run.
#[must_use]
pub fn install_command(provided: &[Provided]) -> Vec<&'static str> {
    let packages = provided.iter().flat_map(|what| what.packages).copied();
    ["apt-get", "install", "--yes", "--no-install-recommends"].into_iter().chain(packages).collect()
}

/// The same in words: what each package brings. Empty where there is nothing to install.
#[must_use]
pub fn packages_text(provided: &[Provided], distribution: &Distribution) -> String {
    if provided.is_empty() {
        return String::new();
    }
    let mut out = format!("What is missing comes in packages of {}:\n", distribution.name);
    for what in provided {
        out.push_str(&format!(
            "  {:<14} {}, for engine {}\n",
            what.packages.join(" "),
            what.brings,
            what.engine.name()
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EmulatorFact;

    const DEBIAN: &str =
        "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_ID=\"12\"\nVERSION=\"12 (bookworm)\"\nID=debian\n";

    /// Facts of a machine without compilers, whose emulator is missing for this reason.
    fn bare(reason: &str) -> Facts {
        Facts { emulator: EmulatorFact { reason: reason.to_owned(), ..EmulatorFact::default() }, ..Facts::default() }
    }

    fn packages(facts: &Facts, os_release: &str) -> Vec<&'static str> {
        provided(facts, &Distribution::parse(os_release)).iter().flat_map(|what| what.packages).copied().collect()
    }

    #[test]
    fn a_distribution_is_read_from_its_file() {
        let debian = Distribution::parse(DEBIAN);
        assert_eq!(debian.name, "Debian GNU/Linux 12 (bookworm)");
        assert_eq!((debian.ids, debian.release.as_str()), (vec!["debian".to_owned()], "12"));
        let mint = Distribution::parse("NAME='Linux Mint'\nID=linuxmint\nID_LIKE=\"ubuntu debian\"\n");
        assert_eq!((mint.ids.join(" ").as_str(), mint.release.as_str()), ("linuxmint ubuntu debian", ""));
        assert_eq!(Distribution::parse(""), Distribution::default());
    }

    #[test]
    fn packages_are_those_that_this_distribution_has_for_what_is_missing() {
        let without = bare(numapilot_emulator::NO_EMULATOR);
        assert_eq!(packages(&without, DEBIAN), ["gcc", "g++", "qemu-user"]);
        // Later releases build their emulator without plugins, and the file of a release to come names no number.
        for later in ["ID=debian\nVERSION_ID=13\n", "ID=debian\n", "ID=ubuntu\nID_LIKE=debian\nVERSION_ID=12\n"] {
            assert_eq!(packages(&without, later), ["gcc", "g++"], "{later}");
        }
        for other in ["ID=fedora\nVERSION_ID=12\n", "ID=arch\n", ""] {
            assert_eq!(packages(&without, other), [""; 0], "{other}");
        }
        assert_eq!(packages(&bare("/usr/bin/qemu-x86_64 takes no plugins"), DEBIAN), ["gcc", "g++"]);
        let compilers = vec!["/usr/bin/gcc".to_owned()];
        assert_eq!(packages(&Facts { compilers: compilers.clone(), ..without.clone() }, DEBIAN), ["qemu-user"]);
        let version = Some("7.2".to_owned());
        let emulator = EmulatorFact { version, ..EmulatorFact::default() };
        assert_eq!(packages(&Facts { compilers, emulator, ..without }, DEBIAN), [""; 0]);
    }

    #[test]
    fn the_command_and_the_words_name_every_package() {
        let debian = Distribution::parse(DEBIAN);
        let provided = provided(&bare(numapilot_emulator::NO_EMULATOR), &debian);
        let command = install_command(&provided).join(" ");
        assert_eq!(command, "apt-get install --yes --no-install-recommends gcc g++ qemu-user");
        let expected = "What is missing comes in packages of Debian GNU/Linux 12 (bookworm):\n  gcc g++        compilers, for engine instrument\n  \
                        qemu-user      an emulator, for engine emulate\n";
        assert_eq!(packages_text(&provided, &debian), expected);
        assert_eq!(packages_text(&[], &debian), "");
    }
}
