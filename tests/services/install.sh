#!/bin/sh
# Installs the programs that the tests and benchmarks start, each only if it is missing, with the
# package manager of the system. Servers are started by the tests alone, on ports of their own.
#
#     sh tests/services/install.sh mariadbd redis-server
set -eu
PATH="$PATH:/usr/sbin:/usr/local/sbin"

package() {
  case "$1" in
    mariadbd) [ "$2" = brew ] && echo mariadb || echo mariadb-server ;;
    redis-server) [ "$2" = apt-get ] && echo redis-server || echo redis ;;
    etcd) [ "$2" = apt-get ] && echo etcd-server || echo etcd ;;
    fish | openssl | strace | zsh) echo "$1" ;;
    *) echo "Nothing is known of a program named $1." >&2; exit 2 ;;
  esac
}

missing=""
for program in "$@"; do
  command -v "$program" >/dev/null || missing="$missing $program"
done
[ -n "$missing" ] || exit 0

for manager in apt-get dnf brew none; do
  command -v "$manager" >/dev/null && break
done

packages=""
for program in $missing; do
  packages="$packages $(package "$program" "$manager")"
done

as_root=""
if [ "$manager" != brew ] && [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null && as_root="sudo" || manager=none
fi
if [ "$manager" = none ]; then
  echo "The tests need these programs:$missing. Install them first; on Debian:" >&2
  echo "  apt-get install --no-install-recommends$packages" >&2
  exit 1
fi

echo "Installing$packages with $manager"
case "$manager" in
  apt-get)
    # A machine that has just come up brings itself up to date, and holds the locks meanwhile.
    until said=$($as_root env LC_ALL=C apt-get update -qq 2>&1); do
      echo "$said" >&2
      case "$said" in *"Could not get lock"*) sleep 10 ;; *) exit 1 ;; esac
    done
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 \
      install -qq -y --no-install-recommends $packages >/dev/null ;;
  dnf) $as_root dnf install -q -y --setopt=install_weak_deps=False $packages ;;
  brew) brew install --quiet $packages ;;
esac
