# Debian's archive for another architecture -> packages in a folder; read by run.sh and record.sh, which set `cache`.
# Nothing is installed on this machine and no maintainer script runs: packages are only unpacked. The archive's address
# is taken from this machine's own apt configuration.

suite=${SUITE:-trixie}

# apt_for ARCHITECTURE PROGRAM ARGUMENT...: apt-get or apt-cache with lists and downloads of their own
apt_for() {
  settings=$cache/apt-$1/apt.conf && shift
  APT_CONFIG=$settings nice -n 10 "$@"
}

prepare_apt() {
  lists=$cache/apt-$1
  [ -e "$lists/ready" ] && return
  archive=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' | sed -n 's/^Debian //p' | head -n 1)
  [ -n "$archive" ] || { echo "no Debian archive in this machine's apt sources" >&2; exit 1; }
  mkdir -p "$lists/lists/partial" "$lists/archives/partial"
  : > "$lists/status"
  keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  echo "deb [arch=$1 signed-by=$keyring] $archive $suite main" > "$lists/sources.list"
  cat > "$lists/apt.conf" <<END
Dir::State "$lists";
Dir::State::status "$lists/status";
Dir::Cache "$lists";
Dir::Etc::SourceList "$lists/sources.list";
Dir::Etc::SourceParts "/dev/null";
APT::Architecture "$1";
APT::Architectures { "$1"; };
APT::Install-Recommends "false";
APT::Sandbox::User "root";
END
  apt_for "$1" apt-get -qq update
  touch "$lists/ready"
}

# file_of ARCHITECTURE PACKAGE: the package alone, without what it depends on
file_of() {
  prepare_apt "$1"
  found=$(find "$cache/apt-$1/archives" -maxdepth 1 -name "$2_*.deb")
  if [ -z "$found" ]; then
    (cd "$cache/apt-$1/archives" && apt_for "$1" apt-get -qq download "$2" >&2)
    found=$(find "$cache/apt-$1/archives" -maxdepth 1 -name "$2_*.deb")
  fi
  echo "$found"
}
