// A parsed template. Trees are never deeper than kMaxDepth, so walking and destroying them may
// recurse.
#ifndef BATON_TEXT_JINJA_AST_H_
#define BATON_TEXT_JINJA_AST_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace baton::jinja {

inline constexpr int kMaxDepth = 100;

struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

struct Expr {
  enum class Kind {
    kLiteral,      // value
    kName,         // name
    kList,         // parts
    kMap,          // parts: key, value, key, value
    kAttribute,    // parts[0] . name
    kItem,         // parts[0] [ parts[1] ]
    kSlice,        // parts[0] [ parts[1] : parts[2] : parts[3] ], the last three may be null
    kCall,         // parts[0] ( arguments )
    kFilter,       // parts[0] | name ( arguments )
    kTest,         // parts[0] is name ( arguments )
    kNot,          // not parts[0]
    kNegate,       // - parts[0]
    kPlus,         // + parts[0]
    kAnd,          // parts[0] and parts[1]
    kOr,           // parts[0] or parts[1]
    kBinary,       // parts[0] name parts[1]
    kCompare,      // parts[0] operators[0] parts[1] operators[1] parts[2] ...
    kConditional,  // parts[1] if parts[0] else parts[2], which may be null
  };
  Kind kind;
  int line = 0;
  int depth = 1;
  std::string name;
  Value value;
  std::vector<ExprPtr> parts;
  std::vector<std::string> operators;
  Arguments arguments;
};

struct Stmt;
using Body = std::vector<std::unique_ptr<const Stmt>>;

struct Branch {
  ExprPtr condition;  // null: else
  Body body;
};

struct MacroNode {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // one per parameter, null without
  Body body;
};

struct Stmt {
  enum class Kind {
    kText,          // text
    kOutput,        // expr
    kIf,            // branches
    kFor,           // targets in expr [if filter]; branches[0] is the body, branches[1] the else
    kSet,           // targets = expr
    kSetAttribute,  // targets[0] . targets[1] = expr
    kSetBody,       // targets[0] = text of branches[0]
    kMacro,         // macro
    kBreak,
    kContinue,
    kGroup,  // branches[0], no scope of its own
  };
  Kind kind;
  int line = 0;
  Value text;
  ExprPtr expr;
  ExprPtr filter;
  std::vector<std::string> targets;
  std::vector<Branch> branches;
  std::unique_ptr<const MacroNode> macro;
};

struct Program {
  Body body;
};

}  // namespace baton::jinja

#endif  // BATON_TEXT_JINJA_AST_H_
