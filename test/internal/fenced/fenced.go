// Package fenced reads the blocks of code of a page of Markdown.
package fenced

import "regexp"

// Block is one of them. Language is what stands behind its fence, and may be empty.
type Block struct{ Language, Text string }

var fences = regexp.MustCompile("(?ms)^( *)```([a-z]*)\n(.*?)^ *```")

// Blocks are those of a page, without the indent of those in a list.
func Blocks(page string) []Block {
	var found []Block
	for _, block := range fences.FindAllStringSubmatch(page, -1) {
		found = append(found, Block{block[2], regexp.MustCompile("(?m)^"+block[1]).ReplaceAllString(block[3], "")})
	}
	return found
}
