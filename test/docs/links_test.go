package docs

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// root is the checkout.
var root = filepath.Join("..", "..")

// Every link inside of the repository leads to a file, and to a heading of it.
func TestLinksLeadSomewhere(t *testing.T) {
	anchors := map[string]map[string]bool{}
	for _, path := range pages(t) {
		for _, link := range links(text(t, path)) {
			target, fragment, _ := strings.Cut(link, "#")
			if strings.Contains(target, ":") {
				continue // of another site
			}
			file := path
			if target != "" {
				file = filepath.Join(filepath.Dir(path), filepath.FromSlash(unescaped(t, target)))
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s: %s is not there", path, link)
				continue
			}
			if fragment == "" || filepath.Ext(file) != ".md" {
				continue
			}
			if anchors[file] == nil {
				anchors[file] = headings(text(t, file))
			}
			if !anchors[file][fragment] {
				t.Errorf("%s: %s has no heading #%s", path, file, fragment)
			}
		}
	}
}

// pages are the Markdown files of the repository, by their paths in it.
func pages(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "bin" || name != "." && strings.HasPrefix(entry.Name(), ".") || entry.Name() == "deps" || entry.Name() == "_build"):
			return filepath.SkipDir
		case filepath.Ext(name) == ".md":
			found = append(found, name)
		}
		return nil
	})
	if err != nil || len(found) < 50 {
		t.Fatalf("%d pages, %v", len(found), err)
	}
	return found
}

func text(t *testing.T, path string) string {
	t.Helper()
	return page(t, strings.Split(filepath.ToSlash(path), "/")...)
}

func unescaped(t *testing.T, target string) string {
	t.Helper()
	path, err := url.PathUnescape(target)
	if err != nil {
		t.Errorf("%s: %v", target, err)
	}
	return path
}

var (
	fences = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	code   = regexp.MustCompile("`[^`\n]*`")
	link   = regexp.MustCompile(`\]\(<?([^)>\s]+)>?(?: "[^"]*")?\)`)
	marks  = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	titles = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	names  = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
)

// links are the targets of a page's links and pictures, without what stands in code.
func links(page string) []string {
	page = code.ReplaceAllString(fences.ReplaceAllString(page, ""), "")
	var found []string
	for _, match := range link.FindAllStringSubmatch(page, -1) {
		found = append(found, match[1])
	}
	return found
}

// The site's menu has every page but the runbooks and the decisions, which pages of their own list.
func TestTheSitesMenuHasEveryPage(t *testing.T) {
	menu := text(t, filepath.Join("hack", "site", "mkdocs.yml"))
	for _, folder := range []string{"docs", filepath.Join("docs", "how-to"), filepath.Join("docs", "reference")} {
		found, err := filepath.Glob(filepath.Join(root, folder, "*.md"))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s has no pages: %v", folder, err)
		}
		for _, path := range found {
			if page := filepath.ToSlash(filepath.Join(folder, filepath.Base(path))); !strings.Contains(menu, page+"\n") {
				t.Errorf("hack/site/mkdocs.yml does not list %s", page)
			}
		}
	}
}

// headings are the anchors that GitHub, and the site of `make docs`, give to a page's headings.
func headings(page string) map[string]bool {
	found := map[string]bool{}
	page = fences.ReplaceAllString(page, "")
	for _, match := range titles.FindAllStringSubmatch(page, -1) {
		found[slug(marks.ReplaceAllString(match[1], "$1"))] = true
	}
	for _, match := range names.FindAllStringSubmatch(page, -1) {
		found[match[1]] = true
	}
	return found
}

func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, heading)
}

// What the picture on the first page says of the losses is what was measured.
func TestThePicturesFiguresAreTheMeasuredOnes(t *testing.T) {
	row := regexp.MustCompile(`(?m)^\| ETS \| rollout-image \| \d+ / \d+ / (\d+) \| [^|]+ \| \d+ / \d+ / (\d+) \|`)
	lost := row.FindStringSubmatch(between(t, page(t, "docs", "reference", "survival.md"), "## The real Phoenix", "\n## "))
	if lost == nil {
		t.Fatal("docs/reference/survival.md has no row of ETS and rollout-image")
	}
	picture := page(t, "docs", "images", "deploy.svg")
	for _, want := range []string{">" + lost[1] + " of 500 users<", ">" + lost[2] + " of 500 users<"} {
		if !strings.Contains(picture, want) {
			t.Errorf("docs/images/deploy.svg does not say %q", want)
		}
	}
}
